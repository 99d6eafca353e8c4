// Copies between views of equal shape with any strides, for any dtype. Permuting, slicing and concatenating use these copies.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

void copy_view(const Tensor& from, const Tensor& to);
/// Sets a contiguous tensor to zero.
void fill_zero(const Tensor& to);

/// Copies a triangle of each matrix that the last two axes form: the elements with column <= row + diagonal if `lower`,
/// otherwise those with column >= row + diagonal. All other elements become zero. Both tensors are contiguous.
void triangle(const Tensor& x, bool lower, i64 diagonal, const Tensor& y);

namespace cuda {
decltype(kernels::copy_view) copy_view;
decltype(kernels::fill_zero) fill_zero;
decltype(kernels::triangle) triangle;
}  // namespace cuda

}  // namespace spillway::kernels
