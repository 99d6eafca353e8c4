// Makes strided views contiguous, because kernels and saved tensors need contiguous memory. The copy is not an op on the tape: a gradient
// is contiguous and has the view's shape, whatever its strides, so the copy's gradient serves as the view's.
#pragma once
#include "autograd/tape.h"
#include "kernels/layout.h"

namespace spillway::ops {

/// Returns x if it is contiguous or undefined, else a contiguous copy.
inline Tensor dense(const Tensor& x) {
  if (!x.defined() || x.is_contiguous()) return x;
  const Tensor copy = empty(x.shape(), x.dtype(), "contiguous copy");
  kernels::copy_view(x, copy);
  return copy;
}
inline autograd::Variable dense(autograd::Variable x) {
  if (!x.value.defined() || x.value.is_contiguous()) return x;
  x.value = dense(x.value);
  x.weight = false;  // the copy does not lie in the parameter's storage
  return x;
}

}  // namespace spillway::ops
