// How a GPU's convolution is cut: the matrix [K, J] of columns is gathered into the workspace a strip at a time and multiplied there by
// matmul.h, group after group. A function of the columns and the type alone, so that plans are made without a GPU; the stream in force must
// be a GPU's or stand for one. For conv*.cc and conv*_cuda.cu alone.
#pragma once
#include "kernels/convolution/conv_columns.h"

namespace spillway::kernels {

/// Three matrices and the product's own workspace lie in a convolution's workspace, each at a multiple of 256 bytes. Their rows begin at
/// multiples of 16 bytes, which is what tensor cores are fed with.
struct Strips {
  i64 rows, k, j;      // of one group
  i64 width = 0;       // columns of a strip and of its rows in memory; the last strip has those that are left
  i64 k_stride = 0;    // from row to row of `matrix`
  i64 matrix_at = 0;   // [rows, K]: weights, or the sums of their gradient
  i64 columns_at = 0;  // [K, width]
  i64 beside_at = 0;   // [rows, width]: the sums of a product, or the gradient of y
  i64 product_at = 0, bytes = 0;
};

/// sums[rows, J] = weights[rows, K] columns[K, J], sums in wide_dtype(dtype).
Strips product_strips(const Columns& columns, i64 rows, DType dtype);
/// sums[rows, K] = dy[rows, J] columns[K, J]^T, likewise.
Strips gradient_strips(const Columns& columns, i64 rows, DType dtype);

}  // namespace spillway::kernels
