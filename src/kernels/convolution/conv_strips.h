// How a GPU's convolution is cut: the matrix [K, J] of columns is gathered into the workspace a strip at a time and multiplied there by
// matmul.h, one group after the other. The cut depends on the columns and the dtype alone, so plans are made without a GPU; the current
// stream must be a GPU's or stand for one. Used only by conv*.cc and conv*_cuda.cu.
#pragma once
#include "kernels/convolution/conv_columns.h"

namespace spillway::kernels {

/// The layout of a convolution's workspace: three matrices and the product's own workspace, each at a multiple of 256 bytes. Matrix rows
/// begin at multiples of 16 bytes, as tensor cores require.
struct Strips {
  i64 rows, k, j;      // extents of one group's matrices
  i64 width = 0;       // columns of a strip and of its rows in memory; the last strip may have fewer
  i64 k_stride = 0;    // elements between rows of `matrix`
  i64 matrix_at = 0;   // byte offset of [rows, K]: the weights, or the sums of their gradient
  i64 columns_at = 0;  // byte offset of [K, width]: the gathered columns
  i64 beside_at = 0;   // byte offset of [rows, width]: the sums of a product, or the gradient of y
  i64 product_at = 0, bytes = 0;
};

/// Returns the strips for sums[rows, J] = weights[rows, K] columns[K, J], with sums in wide_dtype(dtype).
Strips product_strips(const Columns& columns, i64 rows, DType dtype);
/// Returns the strips for sums[rows, K] = dy[rows, J] columns[K, J]^T, with sums in wide_dtype(dtype).
Strips gradient_strips(const Columns& columns, i64 rows, DType dtype);

}  // namespace spillway::kernels
