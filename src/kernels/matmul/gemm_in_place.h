// Products that read one operand in place, element by element at given offsets: the taps of a convolution (like the indirect convolution of
// Dukhan, arXiv 1907.02129, but without one pointer per pixel). Single-threaded, no allocation, thread-safe; P is float or double. Sums are
// those of gemm.h: one chain of multiply-adds over ascending k from zero, to which the sums of earlier chunks are added.
#pragma once
#include "kernels/matmul/gemm.h"

namespace spillway::kernels::gemm {

/// Computes sums[m, kStrip] (+)= A[m, k] B[k, n] with B(p, j) = columns[offsets[p] + j] and n at most kStrip. It reads and writes whole
/// vectors of columns: n is rounded up to a multiple of the vector length, which divides kStrip.
template <class P>
void multiply_columns(i64 m, i64 n, i64 k, Packed<P> a, const P* columns, const i32* offsets, P* sums, bool add);

/// The layout of A: element (r, line * length + i) is rows[row_offsets[r] + line_offsets[line] + i].
template <class P>
struct Lined {
  const P* rows;
  const i32 *row_offsets, *line_offsets;
  i64 lines, length;
};
/// Computes sums[m, n] (+)= A[m, k] B[k, n] with k = lines * length and n at most kStrip. It writes whole vectors of columns: n is rounded
/// up to 16.
template <class P>
void multiply_lines(i64 m, i64 n, Lined<P> a, Packed<P> b, P* sums, i64 row_stride, bool add);

/// Number of partial sums from which add_dots() makes a sum.
template <class P>
inline constexpr i64 kDotParts = 64 / static_cast<i64>(sizeof(P));
/// For few columns, computes sums[m, n, kDotParts] += A[m, k] B[k, n] with B(line * length + i, j) = columns[j * stride + line * length +
/// i]. Element i of every line goes into part i % kDotParts, and each part is one chain of multiply-adds over ascending k.
template <class P>
void add_dots(i64 m, i64 n, Lined<P> a, const P* columns, i64 stride, P* sums);

}  // namespace spillway::kernels::gemm
