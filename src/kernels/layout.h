// Copies between views of equal shape with any strides (for permute, slice, concat), for any dtype.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

void copy_view(const Tensor& from, const Tensor& to);
/// Sets a contiguous tensor to zero.
void fill_zero(const Tensor& to);

/// Copies the part of each matrix of the last two axes with column <= row + diagonal (if `lower`) or column >= row + diagonal, and writes
/// zeros elsewhere; contiguous.
void triangle(const Tensor& x, bool lower, i64 diagonal, const Tensor& y);

namespace cuda {
decltype(kernels::copy_view) copy_view;
decltype(kernels::fill_zero) fill_zero;
decltype(kernels::triangle) triangle;
}  // namespace cuda

}  // namespace spillway::kernels
