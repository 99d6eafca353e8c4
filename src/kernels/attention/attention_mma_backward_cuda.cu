// Gradients of attention on tensor cores, without atomics: one kernel has tiles of queries and goes over the keys for dq, the other has
// tiles of keys and goes over the queries of all heads of its group, upwards, for dk and dv; each makes the scores and the probabilities'
// gradients anew (seven products instead of five, and the same bits on every run). Scores stay in registers: tiles stand on their side in
// the second, whose rows are keys, so that probabilities are the left operand of the next product in both. Probabilities and the gradients
// of scores are rounded to H (bf16 or f16) before that product, as out's are; all sums are f32 and rounded once.
#include "kernels/attention/attention_mma_cuda.h"
#include "kernels/attention/attention_mma_tiles_cuda.h"

namespace spillway::kernels::attention_mma {
namespace {

using attention_problem::Backward;

// A block has kRows rows (of q and dout, or of k and v), and goes over tiles of kColumns (of k and v, or of q and dout), of which a warp
// multiplies kStep at a time.
template <int kWidth, int kTilesOfWarp, int kTileColumns, int kColumnsAtOnce, int kSideBytes>
struct Shape {
  static constexpr int kRows = 128, kRowTiles = kTilesOfWarp, kWarpRows = 16 * kRowTiles, kThreads = kRows / kWarpRows * kWarpThreads;
  static constexpr int kColumns = kTileColumns, kStep = kColumnsAtOnce, kPitch = Layout<kWidth>::kPitch;
  static constexpr int kOwnBytes = kRows * kPitch, kTileBytes = kColumns * kPitch, kBufferBytes = 2 * kTileBytes + kSideBytes;
  static constexpr int kSharedBytes = 2 * (kOwnBytes + kBufferBytes);
};
template <int kWidth>
struct QueryShape : Shape<kWidth, 2, kWidth <= 64 ? 64 : 32, 32, 0> {};
// Beside a tile: the scores' normalisers of its queries, and their deltas. Tiles are narrower for wide heads on a GPU whose blocks have 99
// KiB of shared memory (compute capability 8.6, 8.9, 12.0); what is summed, and in which order, is the same.
template <int kWidth, bool kNarrow>
struct KeyShape : Shape<kWidth, kWidth <= 64 ? 2 : 1, kNarrow ? 32 : 64, kWidth <= 64 || kNarrow ? 32 : 64, 2 * (kNarrow ? 32 : 64) * 4> {};

// f(m, n, i, row, column) of a warp's tile of fragments.
template <int kM, int kN, class F>
__device__ void for_elements(F f) {
  SPILLWAY_UNROLL
  for (int m = 0; m < kM; ++m) {
    SPILLWAY_UNROLL
    for (int n = 0; n < kN; ++n) {
      SPILLWAY_UNROLL
      for (int i = 0; i < 4; ++i) f(m, n, i, m * 16 + i / 2 * 8 + fragment_row(), n * 8 + fragment_column() + i % 2);
    }
  }
}

template <class H, int kWidth, bool kDrops>
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
  using Rows = Copier<H, kWidth, S::kThreads>;
  Rows key_rows(f.k, b, kv, 0), value_rows(f.v, b, kv, 0);
  const auto copy_tile = [&](int key, u32 to) {
    key_rows.template copy<S::kColumns>(f.k, keys - key, e.width, to);
    value_rows.template copy<S::kColumns>(f.v, keys - key, e.width, to + S::kTileBytes);
  };
  Rows(f.q, b, h, begin).template copy<S::kRows>(f.q, queries - begin, e.width, query);
  Rows(f.dout, b, h, begin).template copy<S::kRows>(f.dout, queries - begin, e.width, query + S::kOwnBytes);
  copy_tile(0, buffers);

  float lse[kM][2], delta[kM][2];  // lse of base 2
  SPILLWAY_UNROLL
  for (int i = 0; i < 2 * kM; ++i) {
    const i64 at = (b * e.heads + h) * e.queries + min(first_row + i * 8 + fragment_row(), queries - 1);
    lse[i / 2][i % 2] = f.lse[at] * kLog2e, delta[i / 2][i % 2] = f.delta[at];
  }
  const float scale = f.scale * kLog2e;
  float sum[kM][kWidth / 8][4];
  clear(sum);
  u32 buffer = 0;
  for (int tile_key = 0; tile_key < visible; tile_key += S::kColumns) {
    mma::wait_for_copies();
    __syncthreads();  // the tile is there, and the one before is done with
    u32 tile = buffers + buffer;
    buffer ^= S::kBufferBytes;
    if (tile_key + S::kColumns < visible) copy_tile(tile_key + S::kColumns, buffers + buffer);
    SPILLWAY_NO_UNROLL
    for (int key = tile_key; key < min(tile_key + S::kColumns, visible_here); key += S::kStep, tile += S::kStep * S::kPitch) {
      float x[kM][kN][4], gradient[kM][kN][4];
      multiply_rows<H, kWidth>(own, tile, x);
      multiply_rows<H, kWidth>(own + S::kOwnBytes, tile + S::kTileBytes, gradient);
      const bool masked = key + S::kStep > seen(first_row);
      for_elements<kM, kN>([&](int m, int n, int i, int row, int column) {
        float p = mma::exp2_fast(fmaf(x[m][n][i], scale, -lse[m][i / 2]));
        if (masked && key + column >= seen(first_row + row)) p = 0;
        if constexpr (kDrops) gradient[m][n][i] *= f.kept(b, h, first_row + row, key + column);
        gradient[m][n][i] = p * (gradient[m][n][i] - delta[m][i / 2]);
      });
      add_weighted<H, kWidth>(gradient, tile, sum);
    }
  }
  if (rows <= 0) return;
  store_rows<kWidth>(
      sum, [&](int, int) { return f.scale; }, own, f.dq.at(b, h, first_row), f.dq.row, rows, e.width, f.dq.in_words);
}

template <class H, int kWidth, bool kDrops, bool kNarrow>
__global__ void __launch_bounds__(KeyShape<kWidth, kNarrow>::kThreads, kWidth <= 64 ? 2 : 1) key_tile(Backward<H> f) {
  using S = KeyShape<kWidth, kNarrow>;
  constexpr int kM = S::kRowTiles, kN = S::kStep / 8;
  const auto& e = f.extents;
  const int queries = static_cast<int>(e.queries), keys = static_cast<int>(e.keys), kv_heads = static_cast<int>(e.kv_heads);
  const int group = static_cast<int>(e.heads) / kv_heads, item = static_cast<int>(blockIdx.x), tiles = ceil_div(keys, S::kRows);
  const int kv = item / tiles % kv_heads, b = item / tiles / kv_heads, begin = item % tiles * S::kRows,
            first_row = begin + warp() * S::kWarpRows;
  const int rows = min(S::kWarpRows, keys - first_row);
  const auto first_query = [&](int row) { return e.causal ? max(0, row - (keys - queries)) : 0; };
  const int first = first_query(begin) / S::kColumns * S::kColumns;
  const int of_head = ceil_div(queries - first, S::kColumns), steps = group * of_head;

  const u32 key = mma::shared_begin(), own = key + warp() * S::kWarpRows * S::kPitch, buffers = key + 2 * S::kOwnBytes;
  using Rows = Copier<H, kWidth, S::kThreads>;
  const auto copy_tile = [&](int step, u32 to) {
    const int h = kv * group + step / of_head, query = first + step % of_head * S::kColumns, i = static_cast<int>(threadIdx.x);
    Rows(f.q, b, h, query).template copy<S::kColumns>(f.q, queries - query, e.width, to);
    Rows(f.dout, b, h, query).template copy<S::kColumns>(f.dout, queries - query, e.width, to + S::kTileBytes);
    if (i < 2 * S::kColumns) {
      const float* from = (i < S::kColumns ? f.lse : f.delta) + (b * e.heads + h) * e.queries + query + i % S::kColumns;
      mma::copy_float(to + 2 * S::kTileBytes + i * 4, from, query + i % S::kColumns < queries);
    }
  };
  Rows(f.k, b, kv, begin).template copy<S::kRows>(f.k, keys - begin, e.width, key);
  Rows(f.v, b, kv, begin).template copy<S::kRows>(f.v, keys - begin, e.width, key + S::kOwnBytes);
  copy_tile(0, buffers);

  const float scale = f.scale * kLog2e;
  float key_sum[kM][kWidth / 8][4], value_sum[kM][kWidth / 8][4];
  clear(key_sum), clear(value_sum);
  u32 buffer = 0;
  for (int step = 0; step < steps; ++step) {
    mma::wait_for_copies();
    __syncthreads();  // the tile is there, and the one before is done with
    const u32 tile = buffers + buffer;
    buffer ^= S::kBufferBytes;
    if (step + 1 < steps) copy_tile(step + 1, buffers + buffer);
    if (rows <= 0) continue;
    const int tile_query = first + step % of_head * S::kColumns;
    SPILLWAY_NO_UNROLL
    for (int c = 0; c < S::kColumns; c += S::kStep) {
      const int query = tile_query + c;
      if (query >= queries || query + S::kStep <= first_query(first_row)) continue;
      const u32 q_tile = tile + c * S::kPitch, dout_tile = q_tile + S::kTileBytes;
      float x[kM][kN][4], gradient[kM][kN][4];
      multiply_rows<H, kWidth>(own, q_tile, x);
      multiply_rows<H, kWidth>(own + S::kOwnBytes, dout_tile, gradient);
      const bool masked = query < first_query(first_row + S::kWarpRows - 1);
      const u32 side = tile + 2 * S::kTileBytes + (c + fragment_column()) * 4;
      SPILLWAY_UNROLL
      for (int n = 0; n < kN; ++n) {
        const auto lse = mma::load_shared<float2>(side + n * 32), delta = mma::load_shared<float2>(side + n * 32 + S::kColumns * 4);
        const float offset[2] = {lse.x * kLog2e, lse.y * kLog2e}, deltas[2] = {delta.x, delta.y};
        SPILLWAY_UNROLL
        for (int mi = 0; mi < 4 * kM; ++mi) {
          const int m = mi / 4, i = mi % 4, row = m * 16 + i / 2 * 8 + fragment_row(), column = n * 8 + fragment_column() + i % 2;
          float p = mma::exp2_fast(fmaf(x[m][n][i], scale, -offset[i % 2])), d = gradient[m][n][i];
          if (masked && query + column < first_query(first_row + row)) p = 0;
          x[m][n][i] = p;
          if constexpr (kDrops) {
            const float kept = f.kept(b, kv * group + step / of_head, query + column, first_row + row);
            x[m][n][i] = p * kept, d *= kept;
          }
          gradient[m][n][i] = p * (d - deltas[i % 2]);
        }
      }
      add_weighted<H, kWidth>(x, dout_tile, value_sum);
      add_weighted<H, kWidth>(gradient, q_tile, key_sum);
    }
  }
  if (rows <= 0) return;
  store_rows<kWidth>(
      key_sum, [&](int, int) { return f.scale; }, own, f.dk.at(b, kv, first_row), f.dk.row, rows, e.width, f.dk.in_words);
  store_rows<kWidth>(
      value_sum, [](int, int) { return 1.0f; }, own + S::kOwnBytes, f.dv.at(b, kv, first_row), f.dv.row, rows, e.width, f.dv.in_words);
}

}  // namespace

template <class H>
void gradients(const Backward<H>& f) {
  const auto& e = f.extents;
  for_kernel(e.width, f.dropout.limit != 0, [&](auto width, auto drops) {
    constexpr int kWidth = decltype(width)::value;
    using Query = QueryShape<kWidth>;
    static_assert(Query::kSharedBytes <= kLeastSharedBytes);
    launch_blocks(query_tile<H, width, drops>, e.batch * e.heads * ceil_div(e.queries, Query::kRows), Query::kThreads, Query::kSharedBytes,
                  f);
    const auto launch_keys = [&](auto narrow) {
      using Key = KeyShape<kWidth, decltype(narrow)::value>;
      static_assert(!decltype(narrow)::value || Key::kSharedBytes <= kLeastSharedBytes);
      launch_blocks(key_tile<H, width, drops, narrow>, e.batch * e.kv_heads * ceil_div(e.keys, Key::kRows), Key::kThreads,
                    Key::kSharedBytes, f);
    };
    if constexpr (KeyShape<kWidth, false>::kSharedBytes > kLeastSharedBytes) {
      if (shared_bytes() < KeyShape<kWidth, false>::kSharedBytes) return launch_keys(std::true_type());
    }
    launch_keys(std::false_type());
  });
}
template void gradients(const Backward<BFloat16>&);
template void gradients(const Backward<Float16>&);

}  // namespace spillway::kernels::attention_mma
