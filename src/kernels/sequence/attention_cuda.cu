// Attention on a GPU without tensor cores, for heads of any width. Heads that tensor cores support go to the kernels of
// attention_mma_cuda.h. Probabilities exist only in tiles of kTile x kTile, and the softmax is computed online while going over the keys
// (Dao et al., arXiv:2205.14135). A thread block computes one tile of rows of one head and up to kWidth columns of the result. Wider heads
// take several thread blocks, each of which recomputes the scores. Query gradients are summed over key tiles in ascending order. Gradients
// of keys and values are summed by the thread block that owns the keys, over query heads and tiles in ascending order.
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/dispatch.h"
#include "kernels/sequence/attention_cudnn_cuda.h"
#include "kernels/sequence/attention_mma_cuda.h"
#include "kernels/sequence/attention_tiles_cuda.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels::cuda {
namespace {

using namespace attention_problem;
using namespace attention_tiles;

// One work item of a thread block. Its index is ((b * heads + h) * parts + part) * tiles + tile, where `parts` is how many parts of kWidth
// columns the width is cut into.
struct Piece {
  i64 b, h, first, begin;  // `first` is the first column of the result, `begin` the first row of the tile of rows
  __device__ Piece(i64 item, i64 heads, i64 parts, i64 width, i64 tiles) {
    begin = item % tiles * kTile;
    item /= tiles;
    first = item % parts * width;
    item /= parts;
    h = item % heads, b = item / heads;
  }
};

// Returns the first key that query t sees. If kPlain is true, there is no window, no documents and no
// soft cap. kPlain is known to the compiler because the code for these cases would cost registers.
template <bool kPlain, class P>
__device__ i64 first_seen(const P& f, i64 b, i64 t) {
  return kPlain ? 0 : f.extents.first(b, t);
}

template <int kWidth, class S, bool kPlain>
__global__ void __launch_bounds__(kThreads) attend(Forward<S> f) {
  using T = Wide<S>;
  alignas(sizeof(Quad<T>)) __shared__ T staged[kStagedElems<T>], weights[kTile * kStride];
  const Extents& e = f.extents;
  const i64 tiles = ceil_div(e.queries, kTile), parts = ceil_div(e.width, kWidth), items = e.batch * e.heads * parts * tiles;
  for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
    // Tiles are numbered from the last one, since the last tiles see the most keys and should start first.
    const Piece piece(items - 1 - item, e.heads, parts, kWidth, tiles);
    const i64 b = piece.b, h = piece.h, kv = h / (e.heads / e.kv_heads), first_row = piece.begin + threadIdx.y * kQuad;
    const auto query = f.q.rows(b, h, piece.begin, e.queries);
    const i64 visible = e.seen(min(piece.begin + kTile, e.queries) - 1);
    T top[kQuad], total[kQuad] = {};  // the largest score so far and the sum of exponentials; `total` sums over this thread's keys only
    for (T& x : top) x = -std::numeric_limits<T>::infinity();
    Sums<T, kWidth> sum;
    sum.clear();
    for (i64 begin = first_seen<kPlain>(f, b, piece.begin) / kTile * kTile; begin < visible; begin += kTile) {
      T x[kQuad][kQuad], decay[kQuad];
      multiply_rows(query, f.k.rows(b, kv, begin, e.keys), e.width, staged, x);
      for_quad([&](int i) {
        const i64 s = begin + threadIdx.x * kQuad, first = first_seen<kPlain>(f, b, first_row + i), seen = e.seen(first_row + i);
        T most = top[i];
        for_quad([&](int j) {
          if constexpr (!kPlain) x[i][j] = f.capped(x[i][j]);
          if (s + j < first || s + j >= seen) x[i][j] = -std::numeric_limits<T>::infinity();
          most = Larger()(most, x[i][j]);
        });
        most = fold_lanes(most, Larger(), kSide);
        // For a row that has seen no key yet, `from` is 0, so that all its exponentials become 0 rather than NaN.
        const T from = !kPlain && most == -std::numeric_limits<T>::infinity() ? T(0) : most;
        decay[i] = std::exp(f.scale * (top[i] - from));
        total[i] *= decay[i];
        top[i] = most;
        for_quad([&](int j) {
          x[i][j] = std::exp(f.scale * (x[i][j] - from));
          total[i] += x[i][j];
          x[i][j] *= f.kept(b, h, first_row + i, s + j);
        });
      });
      sum.for_all([&](T& element, int i) { element *= decay[i]; });
      keep_weights(x, weights);
      add_weighted(weights, f.v.rows(b, kv, begin, e.keys), piece.first, e.width, staged, sum);
    }
    for_quad([&](int i) {
      total[i] = fold_lanes(total[i], Plus(), kSide);
      const bool mine = threadIdx.x == 0 && piece.first == 0 && first_row + i < e.queries;
      const T lse = f.end_softmax(h, f.scale * top[i], total[i]);
      if (mine) f.lse[(b * e.heads + h) * e.queries + first_row + i] = lse;
    });
    sum.for_all([&](T& element, int i) { element /= total[i]; });
    store(sum, f.out.at(b, h, piece.begin), f.out.row, e.queries - piece.begin, piece.first, e.width, f.out.aligned);
  }
}

// Computes the scalar product of the rows t of out and dout. The lanes of a warp share the row, and each gets the product.
template <class S>
__device__ Wide<S> dot_row(const View<const S>& out, const View<const S>& dout, i64 width, i64 b, i64 h, i64 t) {
  const S *x = out.at(b, h, t), *y = dout.at(b, h, t);
  Wide<S> sum = 0;
  for (i64 c = WarpRows::rank() * kQuad; c < width; c += kWarpThreads * kQuad) {
    const auto some = load_pack<kQuad>(x + c, width - c, out.aligned), others = load_pack<kQuad>(y + c, width - c, dout.aligned);
    for (int i = 0; i < kQuad; ++i) sum = std::fma(some.at[i], others.at[i], sum);
  }
  return WarpRows::fold(sum, Plus());
}

// Computes delta[b, h, t], the scalar product of the rows t of out and dout, with one warp per row.
template <class S>
__global__ void dot_rows(Backward<S> f) {
  const Extents& e = f.extents;
  for (i64 row = WarpRows::first(); row < e.batch * e.heads * e.queries; row += WarpRows::step()) {
    const i64 t = row % e.queries, h = row / e.queries % e.heads, b = row / e.queries / e.heads;
    const Wide<S> delta = dot_row(f.out, f.dout, e.width, b, h, t);
    if (WarpRows::rank() == 0) f.delta[row] = delta;
  }
}

template <class S>
struct Sinks {
  View<const S> out, dout;
  i64 batch, queries, width;
  const Wide<S>* lse;
  const S* sinks;
  Wide<S>* dsinks;
};

// Computes the gradient of one head's sink per thread block. Each warp sums its rows in ascending order; the warps' sums are added last.
template <class S>
__global__ void sink_gradients(Sinks<S> f) {
  using T = Wide<S>;
  const i64 h = blockIdx.x, heads = gridDim.x;
  const T sink = widen(f.sinks[h]);
  T sum = 0;
  for (i64 row = threadIdx.x / kWarpThreads; row < f.batch * f.queries; row += WarpRows::kRowsOfBlock) {
    const i64 t = row % f.queries, b = row / f.queries;
    sum = std::fma(-std::exp(sink - f.lse[(b * heads + h) * f.queries + t]), dot_row(f.out, f.dout, f.width, b, h, t), sum);
  }
  sum = BlockRows<kBlockThreads>::fold(WarpRows::rank() == 0 ? sum : T(0), Plus());
  if (threadIdx.x == 0) f.dsinks[h] = sum;
}

// Turns `score` from the score of query t and key s into the probability after dropout, and `gradient` from the probability's gradient into
// the score's.
template <bool kPlain, class S, class T = Wide<S>>
__device__ void score_gradient(const Backward<S>& f, i64 b, i64 h, i64 t, i64 s, T lse, T delta, T& score, T& gradient) {
  if (t >= f.extents.queries || s >= f.extents.seen(t) || s < first_seen<kPlain>(f, b, t)) {
    score = 0, gradient = 0;
    return;
  }
  if constexpr (!kPlain) score = f.capped(score);
  const T p = std::exp(f.scale * score - lse);
  const T kept = f.kept(b, h, t, s);
  gradient = p * (gradient * kept - delta) * f.scale;
  if constexpr (!kPlain) gradient *= f.slope(score);
  score = p * kept;
}

template <int kWidth, class S, bool kPlain>
__global__ void __launch_bounds__(kThreads) query_gradients(Backward<S> f) {
  using T = Wide<S>;
  alignas(sizeof(Quad<T>)) __shared__ T staged[kStagedElems<T>], weights[kTile * kStride];
  const Extents& e = f.extents;
  const i64 tiles = ceil_div(e.queries, kTile), parts = ceil_div(e.width, kWidth), items = e.batch * e.heads * parts * tiles;
  for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
    const Piece piece(items - 1 - item, e.heads, parts, kWidth, tiles);
    const i64 b = piece.b, h = piece.h, kv = h / (e.heads / e.kv_heads), first_row = piece.begin + threadIdx.y * kQuad;
    const auto query = f.q.rows(b, h, piece.begin, e.queries), dout = f.dout.rows(b, h, piece.begin, e.queries);
    T lse[kQuad], delta[kQuad];
    for_quad([&](int i) {
      const i64 at = (b * e.heads + h) * e.queries + min(first_row + i, e.queries - 1);
      lse[i] = f.lse[at], delta[i] = f.delta[at];
    });
    Sums<T, kWidth> sum;
    sum.clear();
    const i64 visible = e.seen(min(piece.begin + kTile, e.queries) - 1);
    for (i64 begin = first_seen<kPlain>(f, b, piece.begin) / kTile * kTile; begin < visible; begin += kTile) {
      const auto key = f.k.rows(b, kv, begin, e.keys);
      T score[kQuad][kQuad], gradient[kQuad][kQuad];
      multiply_rows(query, key, e.width, staged, score);
      multiply_rows(dout, f.v.rows(b, kv, begin, e.keys), e.width, staged, gradient);
      for_quad([&](int i) {
        for_quad([&](int j) {
          score_gradient<kPlain>(f, b, h, first_row + i, begin + threadIdx.x * kQuad + j, lse[i], delta[i], score[i][j], gradient[i][j]);
        });
      });
      keep_weights(gradient, weights);
      add_weighted(weights, key, piece.first, e.width, staged, sum);
    }
    store(sum, f.dq.at(b, h, piece.begin), f.dq.row, e.queries - piece.begin, piece.first, e.width, f.dq.aligned);
  }
}

// Computes dk and dv. Tiles are transposed in this kernel: their rows are keys.
template <int kWidth, class S, bool kPlain>
__global__ void __launch_bounds__(kThreads) key_gradients(Backward<S> f) {
  using T = Wide<S>;
  alignas(sizeof(Quad<T>)) __shared__ T staged[kStagedElems<T>], weights[kTile * kStride];
  const Extents& e = f.extents;
  const i64 tiles = ceil_div(e.keys, kTile), parts = ceil_div(e.width, kWidth), items = e.batch * e.kv_heads * parts * tiles;
  for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
    // tiles of keys are numbered from the first one, since most queries see the first keys
    const Piece piece(item, e.kv_heads, parts, kWidth, tiles);
    const i64 b = piece.b, kv = piece.h, group = e.heads / e.kv_heads;
    const auto key = f.k.rows(b, kv, piece.begin, e.keys), value = f.v.rows(b, kv, piece.begin, e.keys);
    Sums<T, kWidth> key_sum, value_sum;
    key_sum.clear(), value_sum.clear();
    for (i64 h = kv * group; h < (kv + 1) * group; ++h) {
      for (i64 begin = e.first_query(piece.begin) / kTile * kTile; begin < e.queries; begin += kTile) {
        if (first_seen<kPlain>(f, b, begin) >= piece.begin + kTile) break;  // from this query on, no query sees the keys of the tile
        const auto query = f.q.rows(b, h, begin, e.queries), dout = f.dout.rows(b, h, begin, e.queries);
        T score[kQuad][kQuad], gradient[kQuad][kQuad];
        multiply_rows(key, query, e.width, staged, score);
        multiply_rows(value, dout, e.width, staged, gradient);
        for_quad([&](int j) {
          const i64 t = begin + threadIdx.x * kQuad + j, at = (b * e.heads + h) * e.queries + min(t, e.queries - 1);
          const T lse = f.lse[at], delta = f.delta[at];
          for_quad([&](int i) {
            score_gradient<kPlain>(f, b, h, t, piece.begin + threadIdx.y * kQuad + i, lse, delta, score[i][j], gradient[i][j]);
          });
        });
        keep_weights(score, weights);
        add_weighted(weights, dout, piece.first, e.width, staged, value_sum);
        __syncthreads();
        keep_weights(gradient, weights);
        add_weighted(weights, query, piece.first, e.width, staged, key_sum);
      }
    }
    const i64 rows = e.keys - piece.begin;
    store(key_sum, f.dk.at(b, kv, piece.begin), f.dk.row, rows, piece.first, e.width, f.dk.aligned);
    store(value_sum, f.dv.at(b, kv, piece.begin), f.dv.row, rows, piece.first, e.width, f.dv.aligned);
  }
}

// Calls f(std::integral_constant<int, kWidth>), where kWidth is how many columns of the result one thread block computes.
template <class T, class F>
void for_width(i64 width, F f) {
  // In f64 the sums of dk and dv for 128 columns and 64 rows would not fit into the registers.
  if constexpr (sizeof(T) == 4) {
    if (width > 64) return f(std::integral_constant<int, 128>());
  }
  f(std::integral_constant<int, 64>());
}

template <class F>
void launch_tiles(void (*kernel)(F), const F& f, i64 batch_heads, i64 rows, i64 width) {
  constexpr i64 kMostBlocks = 1 << 20;
  const i64 items = batch_heads * ceil_div(rows, kTile) * ceil_div(f.extents.width, width);
  launch("attention", kernel, dim3(static_cast<unsigned>(std::clamp<i64>(items, 1, kMostBlocks))), dim3(kSide, kSide), f);
}

bool by_cudnn(const Tensor& q, const Tensor& k, const AttentionMask& mask) {
  return mask.dropout == 0 && mask.is_plain(k.size(1)) && !mask.sinks_H.defined() &&
         attention_cudnn::takes(q.shape(), k.shape(), q.dtype(), mask.library);
}

}  // namespace

i64 attention_workspace_bytes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library) {
  const i64 own = attention_mma::workspace_bytes(q, k, dtype);
  return attention_cudnn::takes(q, k, dtype, library) ? std::max(own, attention_cudnn::workspace_bytes(q, k, dtype)) : own;
}

i64 attention_gradient_workspace_bytes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library) {
  if (attention_cudnn::takes(q, k, dtype, library)) return attention_cudnn::gradient_workspace_bytes(q, k, dtype);
  return q[0] * q[1] * q[2] * size_of(wide_dtype(dtype));
}

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& out, const Tensor& lse,
               const Tensor& workspace) {
  if (out.elems() == 0) return;
  if (by_cudnn(q, k, mask)) return attention_cudnn::attend(q, k, v, mask, out, lse, workspace);
  for_dtype("attention", q.dtype(), [&]<class S>(S) {
    Forward<S> f;
    set(f, q, k, v, mask);
    f.out = View<S>(out), f.lse = lse.data<Wide<S>>(), f.sinks = mask.sinks_H.defined() ? mask.sinks_H.data<S>() : nullptr;
    f.parts = workspace.defined() ? reinterpret_cast<Wide<S>*>(workspace.raw()) : nullptr;
    if constexpr (kIsHalf<S>) {
      if (attention_mma::takes(q.dtype(), f.extents.width)) return attention_mma::attend(f);
    }
    for_width<Wide<S>>(f.extents.width, [&]<int kWidth>(std::integral_constant<int, kWidth>) {
      launch_tiles(mask.is_plain(k.size(1)) ? attend<kWidth, S, true> : attend<kWidth, S, false>, f, f.extents.batch * f.extents.heads,
                   f.extents.queries, kWidth);
    });
  });
}

void attention_gradient(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const AttentionMask& mask, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& workspace) {
  if (dq.elems() == 0) return;
  if (by_cudnn(q, k, mask)) return attention_cudnn::gradients(q, k, v, out, lse, dout, mask, dq, dk, dv, workspace);
  for_dtype("attention_gradient", q.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    Backward<S> f;
    set(f, q, k, v, mask);
    f.out = View<const S>(out), f.dout = View<const S>(dout), f.lse = lse.data<T>(), f.delta = reinterpret_cast<T*>(workspace.raw());
    f.dq = View<S>(dq), f.dk = View<S>(dk), f.dv = View<S>(dv);
    const Extents& e = f.extents;
    const i64 rows = e.batch * e.heads * e.queries;
    launch("attention", dot_rows<S>, blocks_for(rows, WarpRows::kRowsOfBlock), dim3(kBlockThreads), f);
    if constexpr (kIsHalf<S>) {
      if (attention_mma::takes(q.dtype(), e.width)) return attention_mma::gradients(f);
    }
    for_width<T>(e.width, [&]<int kWidth>(std::integral_constant<int, kWidth>) {
      launch_tiles(mask.is_plain(k.size(1)) ? query_gradients<kWidth, S, true> : query_gradients<kWidth, S, false>, f, e.batch * e.heads,
                   e.queries, kWidth);
      launch_tiles(mask.is_plain(k.size(1)) ? key_gradients<kWidth, S, true> : key_gradients<kWidth, S, false>, f, e.batch * e.kv_heads,
                   e.keys, kWidth);
    });
  });
}

void attention_sinks_gradient(const Tensor& out, const Tensor& lse, const Tensor& dout, const Tensor& sinks_H, const Tensor& dsinks_H) {
  if (dsinks_H.elems() == 0) return;
  for_dtype("attention_sinks_gradient", out.dtype(), [&]<class S>(S) {
    const Sinks<S> f{View<const S>(out), View<const S>(dout), out.size(0),       out.size(1),
                     out.size(3),        lse.data<Wide<S>>(), sinks_H.data<S>(), dsinks_H.data<Wide<S>>()};
    launch("attention", sink_gradients<S>, dim3(static_cast<unsigned>(out.size(2))), dim3(kBlockThreads), f);
  });
}

}  // namespace spillway::kernels::cuda
