// Sums of gradients: elementwise, f32 or f64, contiguous views of equal shape, one rounding an element.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// to[i] += from[i]
void accumulate(const Tensor& to, const Tensor& from);
/// out[i] = a[i] + b[i]; out may be a or b.
void add(const Tensor& a, const Tensor& b, const Tensor& out);
/// The bytes of `from` into `to`; any dtype.
void copy(const Tensor& from, const Tensor& to);

}  // namespace spillway::kernels
