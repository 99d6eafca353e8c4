// Cuts a convolution on a GPU into strips. A strip is a range of columns of the matrix [K, J] (conv_columns.h).
// Group after group, one strip at a time is gathered into the workspace and multiplied there by matmul.h. The cut
// depends on the matrix and the dtype alone, so memory plans can be made without a GPU. The current stream must
// belong to a GPU, or to a meta device that imitates one. Only files named conv* include this header.
#pragma once
#include "kernels/images/conv_columns.h"

namespace spillway::kernels {

/// The layout of a convolution's workspace: three matrices and the workspace of matmul(), each at a
/// multiple of 256 bytes. The rows of the matrices begin at multiples of 16 bytes, as tensor cores require.
struct Strips {
  i64 rows, k, j;      // the extents of the matrices of one group: [rows, K] and [K, J]
  i64 width = 0;       // the columns of a strip, and the distance in elements between its rows; the last strip may have fewer columns
  i64 k_stride = 0;    // the distance in elements between the rows of the matrix at matrix_at
  i64 matrix_at = 0;   // the byte offset of a matrix [rows, K]: the weights, or the sums of their gradient
  i64 columns_at = 0;  // the byte offset of the gathered columns [K, width]
  i64 beside_at = 0;   // the byte offset of a matrix [rows, width]: the sums of a product, or the gradient of y
  i64 product_at = 0, bytes = 0;
};

/// Returns the strips for the product sums[rows, J] = weights[rows, K] columns[K, J]. The sums are in wide_dtype(dtype).
Strips product_strips(const Columns& columns, i64 rows, DType dtype);
/// Returns the strips for the product sums[rows, K] = dy[rows, J] columns[K, J]^T. The sums are in wide_dtype(dtype).
Strips gradient_strips(const Columns& columns, i64 rows, DType dtype);

}  // namespace spillway::kernels
