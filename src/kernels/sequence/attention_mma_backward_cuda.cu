// Gradients of attention on tensor cores, without atomics. There are two kinds of kernels. In the first kind, a thread block owns a tile of
// queries and goes over the keys, to compute dq. In the second kind, a thread block owns a tile of keys and values and goes over the
// queries of all query heads that use its key/value head, in ascending order, to compute dk and dv. Both kinds recompute the scores and the
// gradients of the probabilities. That makes seven products instead of five, but no thread block waits for another, and the results are
// bitwise equal in every run. Scores stay in registers. In the second kind tiles are transposed, with keys as rows, so that the
// probabilities are always the left operand of the next product. Probabilities and score gradients are rounded to H (bf16 or f16) before
// that product. All sums are f32 and rounded once.
#include <limits>

#include "kernels/sequence/attention_mma_cuda.h"
#include "kernels/sequence/attention_mma_tiles_cuda.h"

namespace spillway::kernels::attention_mma {
namespace {

using attention_problem::Backward;
using attention_problem::Extents;

// The tile sizes of a kernel. A thread block owns kRows rows of two tensors: of q and dout, or of k and v. It goes
// over tiles of kColumns rows of the other two tensors, and a warp multiplies kStep rows of such a tile at a time.
template <int kWidth, int kRowsOfBlock, int kWarps, int kTileColumns, int kColumnsAtOnce, int kSideBytes, int kHandedBytes>
struct Shape {
  static constexpr int kRows = kRowsOfBlock, kRowTiles = kRowTilesOf<kWidth>, kWarpRows = 16 * kRowTiles, kThreads = kWarps * kWarpThreads;
  static constexpr int kColumns = kTileColumns, kStep = kColumnsAtOnce, kPitch = Layout<kWidth>::kPitch;
  static constexpr int kOwnBytes = kRows * kPitch, kTileBytes = kColumns * kPitch,
                       kBufferBytes = 2 * kTileBytes + round_up(kSideBytes, 128);
  static constexpr int kSharedBytes = 2 * (kOwnBytes + kBufferBytes) + kHandedBytes;
};
template <int kWidth>
struct QueryShape
    : Shape<kWidth, 64 * kRowTilesOf<kWidth>, 4, kWidth <= 64 ? 64 : 16 * kRowTilesOf<kWidth>, 16 * kRowTilesOf<kWidth>, 0, 0> {};
// A warp's rows of q and dout. For heads of up to 64 elements the rows stay in registers. For wider heads this type is the address of the
// tile in shared memory, from which the rows are loaded in every step.
template <int kWidth>
using LeftRows = std::conditional_t<kWidth <= 64, Fragments<kWidth, QueryShape<kWidth>::kRowTiles>, u32>;
// In shared memory each tile of q and dout is followed by the log-sum-exps, the deltas and the positions of its queries.
template <int kWidth>
struct KeyShape : Shape<kWidth, 128, 4, 64, 32, 3 * 64 * 4, 0> {};
// Tiles of kWideTile queries by 2 kWideTile keys. Two warps share 32 keys (16 for heads of more than 128 elements, whose tiles have half as
// many queries and keys), and one of them passes a tile of f32 to the other. kWarps is 8, or 4 on a GPU that gives a thread block only 99
// KiB of shared memory (compute capability 8.6, 8.9, 12.0). Both tile sizes sum the terms in one order.
template <int kWidth, int kWarps>
constexpr int kWideTile = kWarps * 4 * kRowTilesOf<kWidth>;
template <int kWidth, int kWarps>
struct WideKeyShape : Shape<kWidth, 2 * kWideTile<kWidth, kWarps>, kWarps, kWideTile<kWidth, kWarps>, kWideTile<kWidth, kWarps>,
                            3 * kWideTile<kWidth, kWarps> * 4, 2 * kWideTile<kWidth, kWarps> * kWideTile<kWidth, kWarps> * 4> {};

template <class H, int kWidth, Kind kKind>
__global__ void __launch_bounds__(QueryShape<kWidth>::kThreads, 2) query_tile(Backward<H> f) {
  using S = QueryShape<kWidth>;
  constexpr int kM = S::kRowTiles, kN = S::kStep / 8;
  const auto& e = f.extents;
  const int queries = static_cast<int>(e.queries), keys = static_cast<int>(e.keys), heads = static_cast<int>(e.heads);
  const int item = static_cast<int>(blockIdx.x), tiles = ceil_div(queries, S::kRows), h = item / tiles % heads, b = item / tiles / heads;
  const int kv = h / (heads / static_cast<int>(e.kv_heads)), begin = (tiles - 1 - item % tiles) * S::kRows,
            first_row = begin + warp() * S::kWarpRows;
  const int rows = min(S::kWarpRows, queries - first_row);
  const auto seen = [&](int row) { return e.causal ? min(keys, row + 1 + keys - queries) : keys; };
  const int visible = seen(min(begin + S::kRows, queries) - 1), visible_here = rows > 0 ? seen(first_row + rows - 1) : 0;

  const u32 query = mma::shared_begin(), own = query + warp() * S::kWarpRows * S::kPitch, buffers = query + 2 * S::kOwnBytes;
  const FirstKeys<kKind, S::kRows> first_keys(f, b, begin, query + S::kSharedBytes);
  const int first_tile = first_keys.template first_tile<S::kColumns>();
  using Rows = Copier<H, kWidth, S::kThreads, is_aligned(kKind)>;
  Rows key_rows(f.k, b, kv, first_tile), value_rows(f.v, b, kv, first_tile);
  const auto copy_tile = [&](int key, u32 to) {
    key_rows.template copy<S::kColumns>(f.k, keys - key, e.width, to);
    value_rows.template copy<S::kColumns>(f.v, keys - key, e.width, to + S::kTileBytes);
  };
  Rows(f.q, b, h, begin).template copy<S::kRows>(f.q, queries - begin, e.width, query);
  Rows(f.dout, b, h, begin).template copy<S::kRows>(f.dout, queries - begin, e.width, query + S::kOwnBytes);
  copy_tile(first_tile, buffers);

  float lse[kM][2], delta[kM][2];  // the log-sum-exp (to base 2) and the delta of each row that this lane holds
  SPILLWAY_UNROLL
  for (int i = 0; i < 2 * kM; ++i) {
    const i64 at = (b * e.heads + h) * e.queries + min(first_row + i * 8 + fragment_row(), queries - 1);
    lse[i / 2][i % 2] = f.lse[at] * kLog2e, delta[i / 2][i % 2] = f.delta[at];
  }
  const Cap<kKind, Backward<H>> cap(f);
  const float scale = f.scale * kLog2e;
  float sum[kM][kWidth / 8][4];
  clear(sum);
  mma::wait_for_copies();
  __syncthreads();
  const LeftRows<kWidth> q_rows(own), dout_rows(own + S::kOwnBytes);
  u32 buffer = 0;
  for (int tile_key = first_tile; tile_key < visible; tile_key += S::kColumns) {
    mma::wait_for_copies();
    __syncthreads();  // waits until the tile has arrived and no thread uses the previous tile any more
    u32 tile = buffers + buffer;
    buffer ^= S::kBufferBytes;
    if (tile_key + S::kColumns < visible) copy_tile(tile_key + S::kColumns, buffers + buffer);
    SPILLWAY_NO_UNROLL
    for (int key = tile_key; key < min(tile_key + S::kColumns, visible_here); key += S::kStep, tile += S::kStep * S::kPitch) {
      const int first_here = mma::again(first_row);
      if (has_masks(kKind) && key + S::kStep <= first_keys.of(first_here - begin)) continue;
      DropsOf<kKind, kM, kN> drops(f.dropout.kept);
      if (kKind != Kind::general || f.dropout.limit != 0) {
        drops.draw([&](int row, int column) { return f.drops(b, h, first_here + row, key + column); });
      }
      float x[kM][kN][4], gradient[kM][kN][4];
      multiply_rows<H, kWidth>(q_rows, tile, x);
      multiply_rows<H, kWidth>(dout_rows, tile + S::kTileBytes, gradient);
      cap.apply(x);
      if (key + S::kStep > seen(first_row)) {
        for_elements<kM, kN>([&](int m, int n, int i, int row, int column) {
          if (key + column >= seen(first_here + row)) x[m][n][i] = -std::numeric_limits<float>::infinity();
        });
      }
      if (has_masks(kKind) && key < first_keys.of(first_here - begin + S::kWarpRows - 1)) {
        hide_first_columns(x, [&](int row) { return first_keys.of(first_here - begin + row) - key; });
      }
      cap.with_slope([&](auto slope) {
        for_elements<kM, kN>([&](int m, int n, int i, int, int) {
          const float p = mma::exp2_fast(fmaf(x[m][n][i], scale, -lse[m][i / 2]));
          gradient[m][n][i] = p * slope(x[m][n][i]) * (drops(gradient[m][n][i], m, n, i) - delta[m][i / 2]);
        });
      });
      add_weighted<H, kWidth>(gradient, tile, sum);
    }
  }
  if (rows <= 0) return;
  store_rows<kWidth>(
      sum, [&](int, int) { return f.scale; }, own, f.dq.at(b, h, first_row), f.dq.row, rows, e.width, f.dq.in_words);
}

// The code that all thread blocks that own a tile of keys and values share: their setup, and the loop over tiles of queries, head after
// head.
template <class H, int kWidth, Kind kKind, class S>
struct KeyBlock {
  using Rows = Copier<H, kWidth, S::kThreads, is_aligned(kKind)>;
  struct Walk {
    int h, query;
  };

  const Backward<H>& f;
  int queries, keys, kv, b, begin, first, end, end_h;  // only queries [first, end) see keys of this thread block
  u32 key, buffers, buffer = 0;
  Walk here, copied;

  __device__ explicit KeyBlock(const Backward<H>& all)
      : f(all), queries(static_cast<int>(all.extents.queries)), keys(static_cast<int>(all.extents.keys)), key(mma::shared_begin()) {
    const int kv_heads = static_cast<int>(f.extents.kv_heads), group = static_cast<int>(f.extents.heads) / kv_heads;
    const int item = static_cast<int>(blockIdx.x), tiles = ceil_div(keys, S::kRows);
    kv = item / tiles % kv_heads, b = item / tiles / kv_heads, begin = item % tiles * S::kRows;
    first = first_query(begin) / S::kColumns * S::kColumns, end = end_of_queries(), end_h = (kv + 1) * group;
    here = copied = {!has_masks(kKind) || first < end ? kv * group : end_h, first};
    buffers = key + 2 * S::kOwnBytes;
    Rows(f.k, b, kv, begin).template copy<S::kRows>(f.k, keys - begin, f.extents.width, key);
    Rows(f.v, b, kv, begin).template copy<S::kRows>(f.v, keys - begin, f.extents.width, key + S::kOwnBytes);
    if (has_masks(kKind) && done()) {
      mma::wait_for_copies();
      __syncthreads();
      return;
    }
    copy_tile(buffers);
  }
  __device__ int first_query(int row) const { return f.extents.causal ? max(0, row - (keys - queries)) : 0; }
  __device__ bool done() const { return here.h >= end_h; }
  __device__ void next(Walk& walk) const {
    walk.query += S::kColumns;
    if (walk.query >= end) walk.query = first, ++walk.h;
  }
  /// Waits until the tile of queries at `here` has arrived, begins to copy the next tile, and returns the address of the arrived one.
  __device__ u32 tile() {
    mma::wait_for_copies();
    __syncthreads();  // waits until the tile has arrived and no thread uses the previous tile any more
    const u32 at = buffers + buffer;
    buffer ^= S::kBufferBytes;
    if (copied.h < end_h) copy_tile(buffers + buffer);
    return at;
  }
  /// Returns the first key that the query in this column of the tile at address `tile`, whose first query is `query`, sees.
  __device__ int first_key(u32 tile, int query, int column) const {
    const Extents& e = f.extents;
    const int position = query + column + keys - queries, of_window = e.window > 0 ? position + 1 - static_cast<int>(e.window) : 0;
    if (!e.positions) return of_window;
    return max(of_window, position - mma::load_shared<int>(tile + 2 * S::kTileBytes + (2 * S::kColumns + column) * 4));
  }
  /// Begins to copy a tile of queries to address `to`: first q, then dout, then the log-sum-exps of the queries, then their
  /// deltas (the scalar products of the rows of out and dout), and then, if sequences hold documents, the queries' positions.
  __device__ void copy_tile(u32 to) {
    const int h = copied.h, query = copied.query, i = static_cast<int>(threadIdx.x);
    Rows(f.q, b, h, query).template copy<S::kColumns>(f.q, queries - query, f.extents.width, to);
    Rows(f.dout, b, h, query).template copy<S::kColumns>(f.dout, queries - query, f.extents.width, to + S::kTileBytes);
    if (i < 2 * S::kColumns) {
      const float* from = (i < S::kColumns ? f.lse : f.delta) + (b * f.extents.heads + h) * f.extents.queries + query + i % S::kColumns;
      mma::copy_float(to + 2 * S::kTileBytes + i * 4, from, query + i % S::kColumns < queries);
    }
    if (has_masks(kKind) && f.extents.positions && i < S::kColumns) {
      const i32* from = f.extents.positions + b * f.extents.keys + (keys - queries) + query + i;
      mma::copy_float(to + 2 * S::kTileBytes + (2 * S::kColumns + i) * 4, reinterpret_cast<const float*>(from), query + i < queries);
    }
    next(copied);
  }

 private:
  // Returns the end of the queries that see the last key of this thread block. The warp compares 32 queries at a time; later queries see no
  // earlier keys.
  __device__ int end_of_queries() const {
    if (!has_masks(kKind)) return queries;
    const int last = min(begin + S::kRows, keys) - 1;
    int low = first_query(last), high = queries;
    while (low < high) {
      const int step = ceil_div(high - low, kWarpThreads), query = low + lane() * step;
      const int seeing = __popc(__ballot_sync(~0u, query < high && f.extents.first(b, query) <= last));
      if (seeing == 0) break;
      high = min(high, low + seeing * step), low += (seeing - 1) * step + 1;
    }
    return low;
  }
};

// Computes dk and dv for heads of up to 64 elements. Each warp sums the gradients of its own keys.
template <class H, int kWidth, Kind kKind>
__global__ void __launch_bounds__(KeyShape<kWidth>::kThreads, 2) key_tile(Backward<H> f) {
  using S = KeyShape<kWidth>;
  constexpr int kM = S::kRowTiles, kN = S::kStep / 8;
  KeyBlock<H, kWidth, kKind, S> block(f);
  const int first_row = block.begin + warp() * S::kWarpRows, rows = min(S::kWarpRows, block.keys - first_row);
  const u32 own = block.key + warp() * S::kWarpRows * S::kPitch;
  const Cap<kKind, Backward<H>> cap(f);
  const float scale = f.scale * kLog2e;
  float key_sum[kM][kWidth / 8][4], value_sum[kM][kWidth / 8][4];
  clear(key_sum), clear(value_sum);
  for (; !block.done(); block.next(block.here)) {
    const u32 tile = block.tile();
    if (rows <= 0) continue;
    SPILLWAY_NO_UNROLL
    for (int c = 0; c < S::kColumns; c += S::kStep) {
      const int query = block.here.query + c;
      if (query >= block.queries || query + S::kStep <= block.first_query(first_row)) continue;
      if (has_masks(kKind) && block.first_key(tile, block.here.query, c) >= first_row + S::kWarpRows) continue;
      const u32 q_tile = tile + c * S::kPitch, dout_tile = q_tile + S::kTileBytes;
      const int first_here = mma::again(first_row);
      DropsOf<kKind, kM, kN> drops(f.dropout.kept);
      if (kKind != Kind::general || f.dropout.limit != 0) {
        drops.draw([&](int row, int column) { return f.drops(block.b, block.here.h, query + column, first_here + row); });
      }
      float x[kM][kN][4], gradient[kM][kN][4];
      multiply_rows<H, kWidth>(own, q_tile, x);
      multiply_rows<H, kWidth>(own + S::kOwnBytes, dout_tile, gradient);
      cap.apply(x);
      if (query < block.first_query(first_row + S::kWarpRows - 1)) {
        for_elements<kM, kN>([&](int m, int n, int i, int row, int column) {
          if (query + column < block.first_query(first_here + row)) x[m][n][i] = -std::numeric_limits<float>::infinity();
        });
      }
      if (has_masks(kKind) && block.first_key(tile, block.here.query, c + S::kStep - 1) > first_row) {
        hide_first_rows(x, [&](int column) { return block.first_key(tile, block.here.query, c + column) - first_here; });
      }
      const u32 side = tile + 2 * S::kTileBytes + (c + fragment_column()) * 4;
      cap.with_slope([&](auto slope) {
        SPILLWAY_UNROLL
        for (int n = 0; n < kN; ++n) {
          const auto lse = mma::load_shared<float2>(side + n * 32), delta = mma::load_shared<float2>(side + n * 32 + S::kColumns * 4);
          const float offset[2] = {lse.x * kLog2e, lse.y * kLog2e}, deltas[2] = {delta.x, delta.y};
          SPILLWAY_UNROLL
          for (int mi = 0; mi < 4 * kM; ++mi) {
            const int m = mi / 4, i = mi % 4;
            const float p = mma::exp2_fast(fmaf(x[m][n][i], scale, -offset[i % 2]));
            gradient[m][n][i] = p * slope(x[m][n][i]) * (drops(gradient[m][n][i], m, n, i) - deltas[i % 2]);
            x[m][n][i] = drops(p, m, n, i);
          }
        }
      });
      add_weighted<H, kWidth>(x, dout_tile, value_sum);
      add_weighted<H, kWidth>(gradient, q_tile, key_sum);
    }
  }
  if (rows <= 0) return;
  store_rows<kWidth>(
      key_sum, [&](int, int) { return f.scale; }, own, f.dk.at(block.b, block.kv, first_row), f.dk.row, rows, f.extents.width,
      f.dk.in_words);
  store_rows<kWidth>(
      value_sum, [](int, int) { return 1.0f; }, own + S::kOwnBytes, f.dv.at(block.b, block.kv, first_row), f.dv.row, rows, f.extents.width,
      f.dv.in_words);
}

// Computes dk and dv for heads of more than 64 elements. Two warps share the rows of a tile. The first warp computes the
// probabilities, passes them, times the slope of the soft cap, to the second through shared memory (in f32; a negative
// sign marks dropped ones) and sums dv. The second warp computes the gradients of the probabilities and of the scores and sums dk. Since a
// warp holds the sums of only one gradient, it can have twice as many rows, and it loads half as much from the tiles for every product.
template <class H, int kWidth, Kind kKind, int kWarps>
__global__ void __launch_bounds__(WideKeyShape<kWidth, kWarps>::kThreads, 1) wide_key_tile(Backward<H> f) {
  using S = WideKeyShape<kWidth, kWarps>;
  constexpr int kM = S::kRowTiles, kN = S::kStep / 8, kPairs = S::kThreads / kWarpThreads / 2;
  KeyBlock<H, kWidth, kKind, S> block(f);
  const bool for_values = warp() < kPairs;
  const int pair = warp() % kPairs, first_row = block.begin + pair * S::kWarpRows, rows = min(S::kWarpRows, block.keys - first_row);
  const u32 own = block.key + (for_values ? 0 : S::kOwnBytes) + pair * S::kWarpRows * S::kPitch;
  const u32 handed = block.buffers + 2 * S::kBufferBytes + pair * kM * kN * kWarpThreads * 16;
  const Cap<kKind, Backward<H>> cap(f);
  const float scale = f.scale * kLog2e;
  float sum[kM][kWidth / 8][4];
  clear(sum);
  for (; !block.done(); block.next(block.here)) {
    const u32 tile = block.tile(), q_tile = tile, dout_tile = tile + S::kTileBytes;
    const int thread = mma::again(lane());
    const u32 side = tile + 2 * S::kTileBytes + thread % 4 * 8, mine = handed + thread * 16;
    const int query = block.here.query, first_here = mma::again(first_row);
    const bool takes_part = rows > 0 && query + S::kColumns > block.first_query(first_row) &&
                            (!has_masks(kKind) || block.first_key(tile, query, 0) < first_row + S::kWarpRows);
    float x[kM][kN][4];
    DropsOf<kKind, kM, kN> drops(f.dropout.kept);
    if (takes_part) {
      if (for_values && (kKind != Kind::general || f.dropout.limit != 0)) {
        drops.draw([&](int row, int column) { return f.drops(block.b, block.here.h, query + column, first_here + row); });
      }
      multiply_rows<H, kWidth>(own, for_values ? q_tile : dout_tile, x);
      if (for_values) cap.apply(x);
      if (for_values && query < block.first_query(first_row + S::kWarpRows - 1)) {
        for_elements<kM, kN>([&](int m, int n, int i, int row, int column) {
          if (query + column < block.first_query(first_here + row)) x[m][n][i] = -std::numeric_limits<float>::infinity();
        });
      }
      if (has_masks(kKind) && for_values && block.first_key(tile, query, S::kColumns - 1) > first_row) {
        hide_first_rows(x, [&](int column) { return block.first_key(tile, query, column) - first_here; });
      }
      if (for_values) {
        cap.with_slope([&](auto slope) {
          SPILLWAY_UNROLL
          for (int n = 0; n < kN; ++n) {
            const auto lse = mma::load_shared<float2>(side + n * 32);
            const float offset[2] = {lse.x * kLog2e, lse.y * kLog2e};
            SPILLWAY_UNROLL
            for (int m = 0; m < kM; ++m) {
              float p[4];
              SPILLWAY_UNROLL
              for (int i = 0; i < 4; ++i) {
                const float all = mma::exp2_fast(fmaf(x[m][n][i], scale, -offset[i % 2]));
                p[i] = drops.marked(all * slope(x[m][n][i]), m, n, i), x[m][n][i] = drops(all, m, n, i);
              }
              mma::store_shared(mine + (m * kN + n) * kWarpThreads * 16, float4{p[0], p[1], p[2], p[3]});
            }
          }
        });
      }
    }
    __syncthreads();  // waits until the probabilities have been written
    if (!takes_part) continue;
    if (!for_values) {
      SPILLWAY_UNROLL
      for (int n = 0; n < kN; ++n) {
        const auto delta = mma::load_shared<float2>(side + n * 32 + S::kColumns * 4);
        const float deltas[2] = {delta.x, delta.y};
        SPILLWAY_UNROLL
        for (int m = 0; m < kM; ++m) {
          const auto four = mma::load_shared<float4>(mine + (m * kN + n) * kWarpThreads * 16);
          const float p[4] = {four.x, four.y, four.z, four.w};
          SPILLWAY_UNROLL
          for (int i = 0; i < 4; ++i) x[m][n][i] = fabsf(p[i]) * (drops.by_mark(p[i], x[m][n][i]) - deltas[i % 2]);
        }
      }
    }
    add_weighted<H, kWidth>(x, for_values ? dout_tile : q_tile, sum);
  }
  if (rows <= 0) return;
  const auto& to = for_values ? f.dv : f.dk;
  const float factor = for_values ? 1 : f.scale;
  store_rows<kWidth>(
      sum, [&](int, int) { return factor; }, own, to.at(block.b, block.kv, first_row), to.row, rows, f.extents.width, to.in_words);
}

}  // namespace

template <class H>
void gradients(const Backward<H>& f) {
  const auto& e = f.extents;
  const bool in_words = f.q.in_words && f.k.in_words && f.v.in_words && f.dout.in_words;
  for_kernel(e.width, kind_of(f, in_words), [&](auto width, auto kind) {
    constexpr int kWidth = decltype(width)::value;
    using Query = QueryShape<kWidth>;
    constexpr int kQueryBytes = Query::kSharedBytes + FirstKeys<decltype(kind)::value, Query::kRows>::kBytes;
    static_assert(kQueryBytes <= kLeastSharedBytes);
    launch_blocks(query_tile<H, width, kind>, e.batch * e.heads * ceil_div(e.queries, Query::kRows), Query::kThreads, kQueryBytes, f);
    if constexpr (kWidth <= 64) {
      using Key = KeyShape<kWidth>;
      static_assert(Key::kSharedBytes <= kLeastSharedBytes);
      launch_blocks(key_tile<H, width, kind>, e.batch * e.kv_heads * ceil_div(e.keys, Key::kRows), Key::kThreads, Key::kSharedBytes, f);
    } else {
      const auto launch_keys = [&](auto warps) {
        using Key = WideKeyShape<kWidth, decltype(warps)::value>;
        launch_blocks(wide_key_tile<H, width, kind, warps>, e.batch * e.kv_heads * ceil_div(e.keys, Key::kRows), Key::kThreads,
                      Key::kSharedBytes, f);
      };
      static_assert(WideKeyShape<kWidth, 4>::kSharedBytes <= kLeastSharedBytes);
      if (shared_bytes() < WideKeyShape<kWidth, 8>::kSharedBytes) return launch_keys(std::integral_constant<int, 4>());
      launch_keys(std::integral_constant<int, 8>());
    }
  });
}
template void gradients(const Backward<BFloat16>&);
template void gradients(const Backward<Float16>&);

}  // namespace spillway::kernels::attention_mma
