// Matrix products whose operands are functions of their indices, computed by one thread block. They suit small products whose operands are
// scaled, masked or transposed on the way. Included only by kernels/sequence/*_cuda.cu.
#pragma once
#include "kernels/mma_cuda.h"

namespace spillway::kernels {

/// Calls out(i, j, sum over p of a(i, p) b(p, j)) for all i < m and j < n, with p < k in an order that depends on k alone. All threads of a
/// one-dimensional thread block call the function together; each pair (i, j) goes to one of them, always the same for equal m and n. For a
/// dtype H of 16 bits the elements are rounded to H and multiplied on tensor cores. The results are Wide<H>.
template <class H, class A, class B, class Out>
__device__ void block_product(int m, int n, int k, A a, B b, Out out) {
  using T = Wide<H>;
  const auto left = [&](int i, int p) { return i < m && p < k ? a(i, p) : T(0); };
  const auto right = [&](int p, int j) { return p < k && j < n ? b(p, j) : T(0); };
  if constexpr (kIsHalf<H>) {
    constexpr int kRows = 16, kFragments = 4, kColumns = 8 * kFragments, kStep = 16;
    const int across = (n + kColumns - 1) / kColumns, tiles = (m + kRows - 1) / kRows * across;
    const int row = mma::fragment_row(), column = mma::fragment_column();
    for (int tile = mma::warp(); tile < tiles; tile += static_cast<int>(blockDim.x) / 32) {
      const int i = tile / across * kRows + row, first = tile % across * kColumns;
      float sum[kFragments][4] = {};
      for (int p = column; p < k + column; p += kStep) {
        const u32 rows[4] = {mma::pack_halves<H>(left(i, p), left(i, p + 1)), mma::pack_halves<H>(left(i + 8, p), left(i + 8, p + 1)),
                             mma::pack_halves<H>(left(i, p + 8), left(i, p + 9)),
                             mma::pack_halves<H>(left(i + 8, p + 8), left(i + 8, p + 9))};
        SPILLWAY_UNROLL
        for (int f = 0; f < kFragments; ++f) {
          const int j = first + 8 * f + row;
          mma::multiply_add<H>(sum[f], rows, mma::pack_halves<H>(right(p, j), right(p + 1, j)),
                               mma::pack_halves<H>(right(p + 8, j), right(p + 9, j)));
        }
      }
      SPILLWAY_UNROLL
      for (int f = 0; f < kFragments; ++f) {
        SPILLWAY_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int to = i + e / 2 * 8, j = first + 8 * f + column + e % 2;
          if (to < m && j < n) out(to, j, sum[f][e]);
        }
      }
    }
  } else {
    constexpr int kSide = 4;
    const int across = (n + kSide - 1) / kSide, tiles = (m + kSide - 1) / kSide * across;
    for (int tile = static_cast<int>(threadIdx.x); tile < tiles; tile += static_cast<int>(blockDim.x)) {
      const int i = tile / across * kSide, j = tile % across * kSide;
      T sum[kSide][kSide] = {};
      for (int p = 0; p < k; ++p) {
        T columns[kSide];
        for (int e = 0; e < kSide; ++e) columns[e] = right(p, j + e);
        for (int d = 0; d < kSide; ++d) {
          const T row = left(i + d, p);
          for (int e = 0; e < kSide; ++e) sum[d][e] = std::fma(row, columns[e], sum[d][e]);
        }
      }
      for (int d = 0; d < kSide; ++d) {
        for (int e = 0; e < kSide; ++e) {
          if (i + d < m && j + e < n) out(i + d, j + e, sum[d][e]);
        }
      }
    }
  }
}

}  // namespace spillway::kernels
