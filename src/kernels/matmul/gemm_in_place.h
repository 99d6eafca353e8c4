// Products of which one operand is read where it lies, element by element at offsets: the taps of a convolution (as the indirect
// convolution of Dukhan, arXiv 1907.02129, but without a pointer a pixel). Single-threaded, no allocation, thread-safe, P: float or double.
// Sums are made as gemm.h's: one chain of multiply-adds over ascending k from zero, to which earlier chunks are added.
#pragma once
#include "kernels/matmul/gemm.h"

namespace spillway::kernels::gemm {

/// sums[m, kStrip] (+)= A[m, k] B[k, n] with B(p, j) = columns[offsets[p] + j]; n at most kStrip. Whole vectors of columns are read and
/// written: of the n, rounded up to a part of kStrip.
template <class P>
void multiply_columns(i64 m, i64 n, i64 k, Packed<P> a, const P* columns, const i32* offsets, P* sums, bool add);

/// Where A(r, line * length + i) lies: rows[row_offsets[r] + line_offsets[line] + i].
template <class P>
struct Lined {
  const P* rows;
  const i32 *row_offsets, *line_offsets;
  i64 lines, length;
};
/// sums[m, n] (+)= A[m, k] B[k, n], k = lines * length, n at most kStrip. Whole vectors of columns are written: of the n, rounded up to 16.
template <class P>
void multiply_lines(i64 m, i64 n, Lined<P> a, Packed<P> b, P* sums, i64 row_stride, bool add);

/// Parts of which add_dots makes a sum.
template <class P>
inline constexpr i64 kDotParts = 64 / static_cast<i64>(sizeof(P));
/// For few columns: sums[m, n, kDotParts] += A[m, k] B[k, n], element i of every line into part i % kDotParts, each part one chain of
/// multiply-adds over ascending k. B(line * length + i, j) = columns[j * stride + line * length + i].
template <class P>
void add_dots(i64 m, i64 n, Lined<P> a, const P* columns, i64 stride, P* sums);

}  // namespace spillway::kernels::gemm
