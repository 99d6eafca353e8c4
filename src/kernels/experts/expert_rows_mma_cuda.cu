// Products of the experts' rows with their weights, on tensor cores. A thread block computes one tile of one expert's rows. Adjacent thread
// blocks share the rows, then the weights. Quantized weights are dequantized on their way to shared memory.
#include "kernels/experts/expert_tiles_cuda.h"

namespace spillway::kernels::expert_mma {
namespace {

// The bytes of the table of nf4 levels in Dequantizer.
template <WeightFormat kFormat>
constexpr int kTableBytes = kFormat == WeightFormat::nf4 ? 16 * kWarpThreads * sizeof(float) : 0;

template <int kRows, WeightFormat kFormat>
constexpr int kSharedBytes = kTableBytes<kFormat> + kStages*(TermRows<kRows>::kBytes + TermRows<kColumns>::kBytes);
static_assert(TermRows<kColumns>::kBytes == TermColumns<kColumns>::kBytes);

// Rounds a tile of sums and stores it as the first `rows` rows at `to`, of which `columns` columns exist. The words pass through shared
// memory, so that adjacent threads store adjacent words.
template <int kRows, class H>
__device__ void store_tile(const float (&sum)[Quarter<kRows>::kM][Quarter<kRows>::kN][4], u32 shared, H* to, i64 pitch, int rows,
                           int columns) {
  using Words = TermColumns<kColumns>;
  for_pairs<kRows>([&](int m, int n, int second, int row, int column) {
    const u32 pair = mma::pack_halves<H>(sum[m][n][2 * second], sum[m][n][2 * second + 1]);
    mma::store_shared(shared + Words::at(row, column / kWordElems) + column % kWordElems * 2, pair);
  });
  __syncthreads();
  const int word = static_cast<int>(threadIdx.x) % Words::kWords;
  if (word * kWordElems >= columns) return;
  for (int row = static_cast<int>(threadIdx.x) / Words::kWords; row < min(kRows, rows); row += kThreads / Words::kWords)
    *reinterpret_cast<uint4*>(to + row * pitch + word * kWordElems) = mma::load_shared<uint4>(shared + Words::at(row, word));
}

template <class H, int kRows, bool kTransposed, WeightFormat kFormat>
__global__ void __launch_bounds__(kThreads, 2) rows_tile(RowsProblem<H> p, Nf4Levels levels) {
  using Left = TermRows<kRows>;
  using Right = std::conditional_t<kTransposed, TermRows<kColumns>, TermColumns<kColumns>>;
  const int across = ceil_div(p.n, kColumns), column = static_cast<int>(blockIdx.x) % across * kColumns;
  const RowTile tile = row_tile<kRows>(p.weights.begin, p.weights.count, static_cast<int>(blockIdx.x) / across);
  if (tile.expert < 0) return;
  const u32 table = mma::shared_begin(), stages = table + kTableBytes<kFormat>;
  if constexpr (kFormat == WeightFormat::nf4) {
    SPILLWAY_UNROLL
    for (int code = 0; code < 16; ++code) {
      const u32 to = table + static_cast<u32>((code * kWarpThreads + mma::lane()) * sizeof(float));
      if (code % (kThreads / kWarpThreads) == mma::warp()) mma::store_shared(to, levels.of[code]);
    }
    __syncthreads();
  }
  const std::byte* const weight = p.weights.at[tile.expert];
  // the weight as a matrix whose rows are columns of the result, or terms; the tile begins at `column` of the result
  const int pitch = kTransposed ? p.k : p.n, first = kTransposed ? column * p.k : column, rows = kTransposed ? p.n - column : p.k,
            columns = kTransposed ? p.k : p.n - column;
  Copier<H, Left> left(p.a + i64{tile.first} * p.k, p.k, tile.rows, p.k);
  float sum[Quarter<kRows>::kM][Quarter<kRows>::kN][4];
  if constexpr (kFormat == WeightFormat::plain) {
    Copier<H, Right> right(reinterpret_cast<const H*>(weight) + first, pitch, rows, columns);
    sum_terms<H, Left, Right, kRows>(left, right, p.k, stages, sum);
  } else {
    Dequantizer<H, Right, kFormat> right(weight, first, pitch, rows, columns, table);
    sum_terms<H, Left, Right, kRows>(left, right, p.k, stages, sum);
  }
  store_tile<kRows>(sum, stages, p.out + i64{tile.first} * p.n + column, p.n, tile.rows, p.n - column);
}

template <class H, int kRows, bool kTransposed, WeightFormat kFormat>
void launch_tiles(const RowsProblem<H>& p) {
  const i64 blocks = most_row_tiles<kRows>(p.rows, p.weights.count) * ceil_div(p.n, kColumns);
  mma::launch_with_shared("expert rows", rows_tile<H, kRows, kTransposed, kFormat>, dim3(static_cast<unsigned>(blocks)), kThreads,
                          kSharedBytes<kRows, kFormat>, p, Nf4Levels());
}

template <class H, bool kTransposed, WeightFormat kFormat>
void launch_in_tiles(const RowsProblem<H>& p) {
  const bool large = ExpertTile::rows_of(p.rows, p.weights.count) == ExpertTile::kRows;
  large ? launch_tiles<H, ExpertTile::kRows, kTransposed, kFormat>(p) : launch_tiles<H, ExpertTile::kRows / 2, kTransposed, kFormat>(p);
}

template <class H, bool kTransposed>
void launch_for(const RowsProblem<H>& p, WeightFormat format) {
  if (format == WeightFormat::int8) return launch_in_tiles<H, kTransposed, WeightFormat::int8>(p);
  if (format == WeightFormat::nf4) return launch_in_tiles<H, kTransposed, WeightFormat::nf4>(p);
  launch_in_tiles<H, kTransposed, WeightFormat::plain>(p);
}

}  // namespace

template <class H>
void multiply_rows(const RowsProblem<H>& p, ExpertProduct product, WeightFormat format) {
  product == ExpertProduct::with_transpose ? launch_for<H, true>(p, format) : launch_for<H, false>(p, format);
}
template void multiply_rows(const RowsProblem<BFloat16>&, ExpertProduct, WeightFormat);
template void multiply_rows(const RowsProblem<Float16>&, ExpertProduct, WeightFormat);

}  // namespace spillway::kernels::expert_mma
