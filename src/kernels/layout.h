// Copies between views of equal shape with any strides (permute, slice, concat), any type.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

void copy_view(const Tensor& from, const Tensor& to);
/// Zero everywhere; contiguous.
void fill_zero(const Tensor& to);

/// y = x where in the matrices of the last two axes column <= row + diagonal (`lower`) or column >= row + diagonal, else zero; contiguous.
void triangle(const Tensor& x, bool lower, i64 diagonal, const Tensor& y);

namespace cuda {
decltype(kernels::copy_view) copy_view;
decltype(kernels::fill_zero) fill_zero;
decltype(kernels::triangle) triangle;
}  // namespace cuda

}  // namespace spillway::kernels
