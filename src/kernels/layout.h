// Copies between views of equal shape with any strides (permute, slice, concat), any type.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

void copy_view(const Tensor& from, const Tensor& to);
/// Zero everywhere; contiguous.
void fill_zero(const Tensor& to);

namespace cuda {
decltype(kernels::copy_view) copy_view;
decltype(kernels::fill_zero) fill_zero;
}  // namespace cuda

}  // namespace spillway::kernels
