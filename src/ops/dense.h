// Makes strided views contiguous, because kernels and saved tensors need contiguous memory. The copy is not recorded on the tape. Gradients
// are contiguous whatever the strides of the tensor, so the gradient of the copy is also the gradient of the view.
#pragma once
#include "autograd/tape.h"
#include "kernels/layout.h"

namespace spillway::ops {

/// Returns x if it is contiguous or undefined, and a contiguous copy of x otherwise.
inline Tensor dense(const Tensor& x) {
  if (!x.defined() || x.is_contiguous()) return x;
  const Tensor copy = empty(x.shape(), x.dtype(), "contiguous copy");
  kernels::copy_view(x, copy);
  return copy;
}
inline autograd::Variable dense(autograd::Variable x) {
  if (!x.value.defined() || x.value.is_contiguous()) return x;
  x.value = dense(x.value);
  x.weight = false;  // the copy is not the parameter's own storage, so saving it takes memory
  return x;
}

}  // namespace spillway::ops
