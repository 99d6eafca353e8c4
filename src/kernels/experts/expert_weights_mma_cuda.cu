// Sums over the experts' rows, the gradients of their weights, on tensor cores. A thread block computes one tile of one expert's result.
// The rows of the expert are the terms, so an expert without rows gets zeros.
#include "kernels/experts/expert_tiles_cuda.h"

namespace spillway::kernels::expert_mma {
namespace {

constexpr int kRows = ExpertTile::kRows;
using Tile = TermColumns<kColumns>;
static_assert(kRows == kColumns);

template <class H, class Out>
__global__ void __launch_bounds__(kThreads, 2) weight_tile(WeightProblem<H, Out> p) {
  const int across = ceil_div(p.inputs, kColumns), of_expert = across * ceil_div(p.outputs, kRows);
  const int expert = static_cast<int>(blockIdx.x) / of_expert, place = static_cast<int>(blockIdx.x) % of_expert;
  Out* const out = p.out.at[expert];
  if (out == nullptr) return;
  const int first_row = place / across * kRows, first_column = place % across * kColumns;
  const int begin = p.out.begin[expert], rows = p.out.begin[expert + 1] - begin;
  Copier<H, Tile> left(p.a + i64{begin} * p.outputs + first_row, p.outputs, rows, p.outputs - first_row);
  Copier<H, Tile> right(p.b + i64{begin} * p.inputs + first_column, p.inputs, rows, p.inputs - first_column);
  float sum[Quarter<kRows>::kM][Quarter<kRows>::kN][4];
  sum_terms<H, Tile, Tile, kRows>(left, right, rows, mma::shared_begin(), sum);
  for_pairs<kRows>([&](int m, int n, int second, int row, int column) {
    if (first_row + row >= p.outputs || first_column + column >= p.inputs) return;
    const float x = sum[m][n][2 * second], y = sum[m][n][2 * second + 1];
    Out* const to = out + i64{first_row + row} * p.inputs + first_column + column;
    if constexpr (std::is_same_v<Out, float>) {
      *reinterpret_cast<float2*>(to) = float2{x, y};
    } else {
      *reinterpret_cast<u32*>(to) = mma::pack_halves<Out>(x, y);
    }
  });
}

}  // namespace

template <class H, class Out>
void multiply_over_rows(const WeightProblem<H, Out>& p) {
  const i64 tiles = ceil_div(p.inputs, kColumns) * ceil_div(p.outputs, kRows);
  mma::launch_with_shared("expert weights", weight_tile<H, Out>, dim3(static_cast<unsigned>(tiles * p.out.count)), kThreads,
                          kStages * 2 * Tile::kBytes, p);
}
template void multiply_over_rows(const WeightProblem<BFloat16, float>&);
template void multiply_over_rows(const WeightProblem<BFloat16, BFloat16>&);
template void multiply_over_rows(const WeightProblem<Float16, float>&);
template void multiply_over_rows(const WeightProblem<Float16, Float16>&);

}  // namespace spillway::kernels::expert_mma
