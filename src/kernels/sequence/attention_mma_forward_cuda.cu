// Forward attention on tensor cores (Dao, arXiv:2307.08691). A thread block computes kRows queries of one head, each warp
// 32 of them. The block goes over tiles of kKeys keys and values in ascending order; the next tile is copied while the
// current one is used. Scores and probabilities never leave the registers. All sums are f32: the products of queries and
// keys, the sums of the unrounded probabilities (within each lane of a warp, then over a quad of lanes), and the products
// of probabilities and values. Probabilities are rounded to H (bf16 or f16) before they are multiplied with values. So
// the error of out is at most half an ulp of H times the probabilities' mean of |v|, plus the rounding of out itself.
#include <limits>

#include "kernels/sequence/attention_mma_cuda.h"
#include "kernels/sequence/attention_mma_tiles_cuda.h"

namespace spillway::kernels::attention_mma {
namespace {

using attention_problem::Forward;

template <int kWidth>
struct Shape {
  static constexpr int kRows = 128, kKeys = 64, kRowTiles = 2, kWarpRows = 16 * kRowTiles, kThreads = kRows;
  static constexpr int kPitch = Layout<kWidth>::kPitch, kTileBytes = kKeys * kPitch;
  // shared memory for one buffer of queries, two of keys and two of values
  static constexpr int kSharedBytes = kRows * kPitch + 4 * kTileBytes;
};
template <int kWidth, Kind kKind>
constexpr int kBlocksOfProcessor = kWidth <= 64 && kKind == Kind::plain ? 3 : 2;

// The online softmax of one warp's rows. A row is indexed by (m, second): m is the fragment's row in the tile; `second` is 0 for
// the upper and 1 for the lower of the two matrix rows that a lane holds of a fragment. The four lanes of a quad share a row.
struct Softmax {
  float top[2][2], total[2][2];  // the largest score so far and the denominator of each row; `total` sums over this lane's columns only

  __device__ Softmax() {
    SPILLWAY_UNROLL
    for (int i = 0; i < 4; ++i) top[i / 2][i % 2] = -std::numeric_limits<float>::infinity(), total[i / 2][i % 2] = 0;
  }
  // Turns the scores x of a tile into probabilities that are not yet divided by the denominator of the softmax. If
  // the largest score so far grows, the step rescales the results of earlier tiles: the output accumulator `sum`
  // and the denominator `total`. `scale` includes the factor log2(e), because exponentials are computed to base 2.
  template <int kN, int kColumns>
  __device__ void step(float (&x)[2][kN][4], float scale, float (&sum)[2][kColumns][4]) {
    float decay[2][2];
    bool grew = false;
    for_rows([&](int m, int second) {
      float most = top[m][second];
      SPILLWAY_UNROLL
      for (int n = 0; n < kN; ++n) most = fmaxf(most, fmaxf(x[m][n][2 * second], x[m][n][2 * second + 1]));
      most = fold_lanes(
          most, [](float a, float b) { return fmaxf(a, b); }, 4);
      decay[m][second] = mma::exp2_fast((top[m][second] - most) * scale);
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
      const float offset = top[m][second] * scale;
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
  template <class F>
  __device__ static void for_rows(F f) {
    SPILLWAY_UNROLL
    for (int m = 0; m < 2; ++m) {
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

template <class H, int kWidth, Kind kKind>
__global__ void __launch_bounds__(Shape<kWidth>::kThreads, (kBlocksOfProcessor<kWidth, kKind>)) attend_tile(Forward<H> f) {
  using S = Shape<kWidth>;
  constexpr int kN = S::kKeys / 8;
  const auto& e = f.extents;
  const Place<kWidth, H> place(f, static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x));
  const int queries = static_cast<int>(e.queries), keys = static_cast<int>(e.keys), b = place.b, h = place.h, begin = place.begin,
            first_row = place.first_row, rows = place.rows, kv = h / (static_cast<int>(e.heads) / static_cast<int>(e.kv_heads));
  const auto seen = [&](int row) { return e.causal ? min(keys, row + 1 + keys - queries) : keys; };
  const int visible = seen(min(begin + S::kRows, queries) - 1), visible_here = rows > 0 ? seen(first_row + rows - 1) : 0;

  const u32 query = mma::shared_begin(), own = place.own, buffers = query + S::kRows * S::kPitch;
  using Rows = Copier<H, kWidth, S::kThreads, kKind != Kind::unaligned>;
  Rows key_rows(f.k, b, kv, 0), value_rows(f.v, b, kv, 0);
  const auto copy_tile = [&](int key, u32 to) {
    key_rows.template copy<S::kKeys>(f.k, keys - key, e.width, to);
    value_rows.template copy<S::kKeys>(f.v, keys - key, e.width, to + S::kTileBytes);
  };
  Rows(f.q, b, h, begin).template copy<S::kRows>(f.q, queries - begin, e.width, query);
  copy_tile(0, buffers);

  const float scale = f.scale * kLog2e;
  Softmax softmax;
  float sum[2][kWidth / 8][4];
  clear(sum);
  u32 buffer = 0;
  for (int key = 0; key < visible; key += S::kKeys) {
    mma::wait_for_copies();
    __syncthreads();  // waits until the tile has arrived and no thread uses the previous tile any more
    const u32 tile = buffers + buffer;
    buffer ^= 2 * S::kTileBytes;
    if (key + S::kKeys < visible) copy_tile(key + S::kKeys, buffers + buffer);
    if (key >= visible_here) continue;
    const int first = mma::again(first_row);
    DropsOf<kKind, 2, kN> drops(f.dropout.kept);
    drops.draw([&](int row, int column) { return f.drops(b, h, first + row, key + column); });
    float x[2][kN][4];
    multiply_rows<H, kWidth>(own, tile, x);
    if (key + S::kKeys > seen(first_row)) {
      for_elements<2, kN>([&](int m, int n, int i, int row, int column) {
        if (key + column >= seen(first + row)) x[m][n][i] = -std::numeric_limits<float>::infinity();
      });
    }
    softmax.step(x, scale, sum);
    for_elements<2, kN>([&](int m, int n, int i, int, int) { x[m][n][i] = drops(x[m][n][i], m, n, i); });
    add_weighted<H, kWidth>(x, tile + S::kTileBytes, sum);
  }

  const Place<kWidth, H> at(f, mma::again(static_cast<int>(blockIdx.x)), mma::again(static_cast<int>(threadIdx.x)));
  if (at.rows <= 0) return;
  SPILLWAY_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int m = i / 2, second = i % 2, row = m * 16 + second * 8 + fragment_row();
    float& total = softmax.total[m][second];
    total = fold_lanes(total, Plus(), 4);
    if (lane() % 4 == 0 && row < at.rows) {
      f.lse[(at.b * e.heads + at.h) * e.queries + at.first_row + row] = f.scale * softmax.top[m][second] + logf(total);
    }
  }
  const auto by_total = [&](int m, int second) { return 1 / softmax.total[m][second]; };
  store_rows<kWidth>(sum, by_total, at.own, f.out.at(at.b, at.h, at.first_row), f.out.row, at.rows, e.width, f.out.in_words);
}

}  // namespace

int shared_bytes() {
  int device = 0, shared = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  return shared;
}

bool takes(DType dtype, i64 width) {
  return is_half(dtype) && width >= 32 && width <= 128 && width % 16 == 0 && shared_bytes() >= kLeastSharedBytes;
}

template <class H>
void attend(const Forward<H>& f) {
  for_kernel(f.extents.width, kind_of(f, f.q.in_words && f.k.in_words && f.v.in_words), [&](auto width, auto kind) {
    using S = Shape<decltype(width)::value>;
    static_assert(S::kSharedBytes <= kLeastSharedBytes);
    const i64 blocks = f.extents.batch * f.extents.heads * ceil_div(f.extents.queries, S::kRows);
    launch_blocks(attend_tile<H, width, kind>, blocks, S::kThreads, S::kSharedBytes, f);
  });
}
template void attend(const Forward<BFloat16>&);
template void attend(const Forward<Float16>&);

}  // namespace spillway::kernels::attention_mma
