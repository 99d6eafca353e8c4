// Products that read one operand in place, element by element at given offsets. Convolution uses them for its
// filter taps, as the indirect convolution of Dukhan does (arXiv 1907.02129), but without one pointer per pixel.
// The functions are single-threaded and thread-safe and allocate nothing. P is float or double. Sums are those of
// gemm.h: one chain of multiply-adds over ascending k from zero, to which the sums of earlier chunks are added.
#pragma once
#include "kernels/products/gemm.h"

namespace spillway::kernels::gemm {

/// Computes sums[m, kStrip] (+)= A[m, k] B[k, n], where B(p, j) = columns[offsets[p] + j] and n is
/// at most kStrip. `add` says whether the old sums are added. The function reads and writes whole
/// vectors of columns: n is rounded up to a multiple of the vector length, which divides kStrip.
template <class P>
void multiply_columns(i64 m, i64 n, i64 k, Packed<P> a, const P* columns, const i32* offsets, P* sums, bool add);

/// An operand A that consists of lines: element (r, line * length + i) is rows[row_offsets[r] + line_offsets[line] + i].
template <class P>
struct Lined {
  const P* rows;
  const i32 *row_offsets, *line_offsets;
  i64 lines, length;
};
/// Computes sums[m, n] (+)= A[m, k] B[k, n], where k = lines * length and n is at most kStrip. `add` says whether
/// the old sums are added. The function writes whole vectors of columns: n is rounded up to a multiple of 16.
template <class P>
void multiply_lines(i64 m, i64 n, Lined<P> a, Packed<P> b, P* sums, i64 row_stride, bool add);

/// The number of partial sums that add_dots() keeps for each sum.
template <class P>
inline constexpr i64 kDotParts = 64 / static_cast<i64>(sizeof(P));
/// Adds A[m, k] B[k, n] to the partial sums sums[m, n, kDotParts], for few columns n, where B(line * length + i, j) = columns[j * stride +
/// line * length + i]. Element i of every line is added to partial sum i % kDotParts. Each partial sum is one chain of multiply-adds over
/// ascending k.
template <class P>
void add_dots(i64 m, i64 n, Lined<P> a, const P* columns, i64 stride, P* sums);

}  // namespace spillway::kernels::gemm
