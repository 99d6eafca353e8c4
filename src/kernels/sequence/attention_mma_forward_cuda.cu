// Forward attention on tensor cores (Dao, arXiv:2307.08691). A thread block computes kRows queries of one head, each warp
// 32 of them, or 16 if a head has more than 128 elements. The block goes over tiles of kKeys keys and values in ascending order; the next
// tile is copied while the current one is used. Scores and probabilities never leave the registers. All sums are f32: the products of
// queries and keys, the sums of the unrounded probabilities (within each lane of a warp, then over a quad of lanes), and the products of
// probabilities and values. Probabilities are rounded to H (bf16 or f16) before they are multiplied with values. So the error of out is at
// most half an ulp of H times the probabilities' mean of |v|, plus the rounding of out itself.
#include <limits>

#include "kernels/sequence/attention_mma_cuda.h"
#include "kernels/sequence/attention_mma_tiles_cuda.h"

namespace spillway::kernels::attention_mma {
namespace {

using attention_problem::Extents;
using attention_problem::Forward;

template <int kWidth>
struct Shape {
  static constexpr int kRowTiles = kRowTilesOf<kWidth>, kWarpRows = 16 * kRowTiles, kThreads = 128;
  static constexpr int kRows = kThreads / kWarpThreads * kWarpRows, kKeys = 32 * kRowTiles;
  static constexpr int kPitch = Layout<kWidth>::kPitch, kTileBytes = kKeys * kPitch;
  // shared memory for one buffer of queries, two of keys and two of values
  static constexpr int kTilesBytes = kRows * kPitch + 4 * kTileBytes;
  template <Kind kKind>
  static constexpr int kSharedBytes = kTilesBytes + FirstKeys<kKind, kRows>::kBytes;
};
template <int kWidth, Kind kKind>
constexpr int kBlocksOfProcessor = kWidth <= 64 && kKind == Kind::plain ? 3 : 2;

// The online softmax of one warp's rows. A row is indexed by (m, second): m is the fragment's row in the tile; `second` is 0 for
// the upper and 1 for the lower of the two matrix rows that a lane holds of a fragment. The four lanes of a quad share a row.
template <int kM>
struct Softmax {
  float top[kM][2], total[kM][2];  // the largest score so far and the denominator of each row; `total` sums over this lane's columns only

  __device__ Softmax() {
    SPILLWAY_UNROLL
    for (int i = 0; i < 2 * kM; ++i) top[i / 2][i % 2] = -std::numeric_limits<float>::infinity(), total[i / 2][i % 2] = 0;
  }
  // Turns the scores x of a tile into probabilities that are not yet divided by the denominator of the softmax. If
  // the largest score so far grows, the step rescales the results of earlier tiles: the output accumulator `sum`
  // and the denominator `total`. `scale` includes the factor log2(e), because exponentials are computed to base 2.
  // If kMayBeHidden is true, a row may see no key of this tile and of the earlier ones; its probabilities are then 0 rather than NaN.
  template <bool kMayBeHidden, int kN, int kColumns>
  __device__ void step(float (&x)[kM][kN][4], float scale, float (&sum)[kM][kColumns][4]) {
    float decay[kM][2];
    bool grew = false;
    for_rows([&](int m, int second) {
      float most = top[m][second];
      SPILLWAY_UNROLL
      for (int n = 0; n < kN; ++n) most = fmaxf(most, fmaxf(x[m][n][2 * second], x[m][n][2 * second + 1]));
      most = fold_lanes(
          most, [](float a, float b) { return fmaxf(a, b); }, 4);
      decay[m][second] = mma::exp2_fast((top[m][second] - finite<kMayBeHidden>(most)) * scale);
      grew |= top[m][second] != most;
      top[m][second] = most;
    });
    if (__any_sync(~0u, grew)) {  // seldom true after the first tiles; if no largest score grew, all decay factors are 1
      for_rows([&](int m, int second) {
        total[m][second] *= decay[m][second];
        SPILLWAY_UNROLL
        for (int n = 0; n < kColumns; ++n) sum[m][n][2 * second] *= decay[m][second], sum[m][n][2 * second + 1] *= decay[m][second];
      });
    }
    for_rows([&](int m, int second) {
      const float offset = finite<kMayBeHidden>(top[m][second]) * scale;
      float more = 0;
      SPILLWAY_UNROLL
      for (int n = 0; n < kN; ++n) {
        SPILLWAY_UNROLL
        for (int i = 2 * second; i < 2 * second + 2; ++i) {
          x[m][n][i] = mma::exp2_fast(fmaf(x[m][n][i], scale, -offset));
          more += x[m][n][i];
        }
      }
      total[m][second] += more;
    });
  }

 private:
  template <bool kMayBeHidden>
  __device__ static float finite(float top) {
    return kMayBeHidden && top == -std::numeric_limits<float>::infinity() ? 0 : top;
  }
  template <class F>
  __device__ static void for_rows(F f) {
    SPILLWAY_UNROLL
    for (int m = 0; m < kM; ++m) {
      SPILLWAY_UNROLL
      for (int second = 0; second < 2; ++second) f(m, second);
    }
  }
};

// Tells which rows a warp computes. The thread blocks of one head are adjacent, so that they share
// the head's keys in the caches. The last tile of a head comes first, because it sees the most keys.
template <int kWidth, class H>
struct Place {
  // the batch's sequence, the head, the first row of the thread block and of the warp; `rows`: how many rows of the warp exist (0 or less:
  // none)
  int b, h, begin, first_row, rows;
  u32 own;
  __device__ Place(const Forward<H>& f, int item, int thread) {
    using S = Shape<kWidth>;
    const int queries = static_cast<int>(f.extents.queries), heads = static_cast<int>(f.extents.heads), tiles = ceil_div(queries, S::kRows);
    const int warp = thread / kWarpThreads;
    h = item / tiles % heads, b = item / tiles / heads, begin = (tiles - 1 - item % tiles) * S::kRows;
    first_row = begin + warp * S::kWarpRows, rows = min(S::kWarpRows, queries - first_row);
    own = mma::shared_begin() + warp * S::kWarpRows * S::kPitch;
  }
};

// The most queries for which the keys are split, and the keys that a thread block then goes over. It is a multiple of all tiles of keys.
constexpr int kFewQueries = 16, kPartKeys = 512;

// The workspace of attention with split keys: for each part of the keys, the log-sum-exps of all rows, which are [B, H, Tq], and their
// results over the part's keys alone.
struct Parts {
  float *lse, *out;
  template <class H>
  __device__ Parts(const Forward<H>& f, i64 part, i64 parts) {
    const Extents& e = f.extents;
    const i64 rows = e.batch * e.heads * e.queries;
    lse = f.parts + part * rows, out = f.parts + parts * rows + part * rows * e.width;
  }
};

// Stores a warp's results over one part of the keys. Rows that see none of these keys get results of 0.
template <class H, int kWidth, int kM>
__device__ void store_part(const Forward<H>& f, const Place<kWidth, H>& at, Softmax<kM>& softmax, float (&sum)[kM][kWidth / 8][4]) {
  const Extents& e = f.extents;
  const Parts to(f, blockIdx.y, gridDim.y);
  SPILLWAY_UNROLL
  for (int mi = 0; mi < 2 * kM; ++mi) {
    const int m = mi / 2, second = mi % 2, row = m * 16 + second * 8 + fragment_row();
    const float total = fold_lanes(softmax.total[m][second], Plus(), 4);
    if (row >= at.rows) continue;
    const i64 of_all = (at.b * e.heads + at.h) * e.queries + at.first_row + row;
    if (lane() % 4 == 0) to.lse[of_all] = f.scale * softmax.top[m][second] + logf(total);
    SPILLWAY_UNROLL
    for (int n = 0; n < kWidth / 8; ++n) {
      SPILLWAY_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int c = n * 8 + fragment_column() + i;
        if (c < e.width) to.out[of_all * e.width + c] = total > 0 ? sum[m][n][2 * second + i] / total : 0;
      }
    }
  }
}

// Joins the results of the parts of the keys, with a warp for each row. Parts are added in ascending order.
template <class H>
__global__ void join_parts(Forward<H> f, int parts) {
  const Extents& e = f.extents;
  const i64 rows = e.batch * e.heads * e.queries;
  const Parts from(f, 0, parts);
  for (i64 row = WarpRows::first(); row < rows; row += WarpRows::step()) {
    const i64 t = row % e.queries, h = row / e.queries % e.heads, b = row / e.queries / e.heads;
    float top = -std::numeric_limits<float>::infinity(), total = 0;
    for (int part = WarpRows::rank(); part < parts; part += kWarpThreads) top = fmaxf(top, from.lse[part * rows + row]);
    top = WarpRows::fold(top, Larger());
    for (int part = WarpRows::rank(); part < parts; part += kWarpThreads) total += expf(from.lse[part * rows + row] - top);
    total = WarpRows::fold(total, Plus());
    const float lse = f.end_softmax(h, top, total);
    if (WarpRows::rank() == 0) f.lse[row] = lse;
    for (i64 c = WarpRows::rank(); c < e.width; c += kWarpThreads) {
      float sum = 0;
      for (int part = 0; part < parts; ++part) {
        sum = fmaf(expf(from.lse[part * rows + row] - top), from.out[(part * rows + row) * e.width + c], sum);
      }
      f.out.at(b, h, t)[c] = narrow<H>(sum / total);
    }
  }
}

template <class H, int kWidth, Kind kKind>
__global__ void __launch_bounds__(Shape<kWidth>::kThreads, (kBlocksOfProcessor<kWidth, kKind>)) attend_tile(Forward<H> f) {
  using S = Shape<kWidth>;
  constexpr int kM = S::kRowTiles, kN = S::kKeys / 8;
  const auto& e = f.extents;
  const Place<kWidth, H> place(f, static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x));
  const int queries = static_cast<int>(e.queries), keys = static_cast<int>(e.keys), b = place.b, h = place.h, begin = place.begin,
            first_row = place.first_row, rows = place.rows, kv = h / (static_cast<int>(e.heads) / static_cast<int>(e.kv_heads));
  // only a kernel of kind `general` can have several parts, each of kPartKeys keys
  const int part = static_cast<int>(blockIdx.y);
  const bool is_split = kKind == Kind::general && gridDim.y > 1;
  const auto seen = [&](int row) { return e.causal ? min(keys, row + 1 + keys - queries) : keys; };
  const auto within = [&](int end) { return is_split ? min(end, (part + 1) * kPartKeys) : end; };
  const int visible = within(seen(min(begin + S::kRows, queries) - 1)), visible_here = rows > 0 ? within(seen(first_row + rows - 1)) : 0;

  const u32 query = mma::shared_begin(), own = place.own, buffers = query + S::kRows * S::kPitch;
  const FirstKeys<kKind, S::kRows> first_keys(f, b, begin, query + S::kTilesBytes);
  const int first_tile = max(first_keys.template first_tile<S::kKeys>(), is_split ? part * kPartKeys : 0);
  using Rows = Copier<H, kWidth, S::kThreads, is_aligned(kKind)>;
  Rows key_rows(f.k, b, kv, first_tile), value_rows(f.v, b, kv, first_tile);
  const auto copy_tile = [&](int key, u32 to) {
    key_rows.template copy<S::kKeys>(f.k, keys - key, e.width, to);
    value_rows.template copy<S::kKeys>(f.v, keys - key, e.width, to + S::kTileBytes);
  };
  Rows(f.q, b, h, begin).template copy<S::kRows>(f.q, queries - begin, e.width, query);
  if (!is_split || first_tile < visible) copy_tile(first_tile, buffers);

  const Cap<kKind, Forward<H>> cap(f);
  const float scale = f.scale * kLog2e;
  Softmax<kM> softmax;
  float sum[kM][kWidth / 8][4];
  clear(sum);
  u32 buffer = 0;
  for (int key = first_tile; key < visible; key += S::kKeys) {
    mma::wait_for_copies();
    __syncthreads();  // waits until the tile has arrived and no thread uses the previous tile any more
    const u32 tile = buffers + buffer;
    buffer ^= 2 * S::kTileBytes;
    if (key + S::kKeys < visible) copy_tile(key + S::kKeys, buffers + buffer);
    if (key >= visible_here) continue;
    const int first = mma::again(first_row);
    if (has_masks(kKind) && key + S::kKeys <= first_keys.of(first - begin)) continue;
    DropsOf<kKind, kM, kN> drops(f.dropout.kept);
    if (kKind != Kind::general || f.dropout.limit != 0) {
      drops.draw([&](int row, int column) { return f.drops(b, h, first + row, key + column); });
    }
    float x[kM][kN][4];
    multiply_rows<H, kWidth>(own, tile, x);
    cap.apply(x);
    if (key + S::kKeys > seen(first_row)) {
      for_elements<kM, kN>([&](int m, int n, int i, int row, int column) {
        if (key + column >= seen(first + row)) x[m][n][i] = -std::numeric_limits<float>::infinity();
      });
    }
    if (has_masks(kKind) && key < first_keys.of(first - begin + S::kWarpRows - 1)) {
      hide_first_columns(x, [&](int row) { return first_keys.of(first - begin + row) - key; });
    }
    softmax.template step<has_masks(kKind)>(x, scale, sum);
    for_elements<kM, kN>([&](int m, int n, int i, int, int) { x[m][n][i] = drops(x[m][n][i], m, n, i); });
    add_weighted<H, kWidth>(x, tile + S::kTileBytes, sum);
  }

  const Place<kWidth, H> at(f, mma::again(static_cast<int>(blockIdx.x)), mma::again(static_cast<int>(threadIdx.x)));
  if (is_split) mma::wait_for_copies();  // if no query sees a key of this part, the queries are still under way
  if (at.rows <= 0) return;
  if (is_split) return store_part(f, at, softmax, sum);
  SPILLWAY_UNROLL
  for (int i = 0; i < 2 * kM; ++i) {
    const int m = i / 2, second = i % 2, row = m * 16 + second * 8 + fragment_row();
    float& total = softmax.total[m][second];
    total = fold_lanes(total, Plus(), 4);
    const float top = f.scale * softmax.top[m][second], lse = has_masks(kKind) ? f.end_softmax(at.h, top, total) : top + logf(total);
    if (lane() % 4 == 0 && row < at.rows) f.lse[(at.b * e.heads + at.h) * e.queries + at.first_row + row] = lse;
  }
  const auto by_total = [&](int m, int second) { return 1 / softmax.total[m][second]; };
  store_rows<kWidth>(sum, by_total, at.own, f.out.at(at.b, at.h, at.first_row), f.out.row, at.rows, e.width, f.out.in_words);
}

int parts_of(i64 queries, i64 keys) { return queries <= kFewQueries ? static_cast<int>(ceil_div(keys, kPartKeys)) : 1; }

template <class H>
void attend_split(const Forward<H>& f, int parts) {
  const auto& e = f.extents;
  for_width(e.width, [&](auto width) {
    using S = Shape<decltype(width)::value>;
    launch_blocks(attend_tile<H, width, Kind::general>, e.batch * e.heads, S::kThreads, S::template kSharedBytes<Kind::general>, f, parts);
  });
  launch("attention", join_parts<H>, blocks_for(e.batch * e.heads * e.queries, WarpRows::kRowsOfBlock), dim3(kBlockThreads), f, parts);
}

bool has_shape(DType dtype, i64 width) { return is_half(dtype) && width >= 32 && width <= 256 && width % 16 == 0; }

}  // namespace

int shared_bytes() {
  int device = 0, shared = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  return shared;
}

bool takes(DType dtype, i64 width) { return has_shape(dtype, width) && shared_bytes() >= kLeastSharedBytes; }

i64 workspace_bytes(const ::spillway::Shape& q, const ::spillway::Shape& k, DType dtype) {
  const int parts = parts_of(q[1], k[1]);
  return parts > 1 && has_shape(dtype, q[3]) ? parts * q[0] * q[1] * q[2] * (q[3] + 1) * i64{sizeof(float)} : 0;
}

template <class H>
void attend(const Forward<H>& f) {
  const int parts = parts_of(f.extents.queries, f.extents.keys);
  if (parts > 1 && f.dropout.limit == 0) return attend_split(f, parts);
  for_kernel(f.extents.width, kind_of(f, f.q.in_words && f.k.in_words && f.v.in_words, f.sinks != nullptr), [&](auto width, auto kind) {
    using S = Shape<decltype(width)::value>;
    constexpr int kSharedBytes = S::template kSharedBytes<decltype(kind)::value>;
    static_assert(kSharedBytes <= kLeastSharedBytes);
    const i64 blocks = f.extents.batch * f.extents.heads * ceil_div(f.extents.queries, S::kRows);
    launch_blocks(attend_tile<H, width, kind>, blocks, S::kThreads, kSharedBytes, f);
  });
}
template void attend(const Forward<BFloat16>&);
template void attend(const Forward<Float16>&);

}  // namespace spillway::kernels::attention_mma
