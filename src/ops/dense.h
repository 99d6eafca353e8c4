// Views of any strides as the contiguous tensors that kernels, and tapes that save them, take. A copy's gradient is that of its view: a
// gradient is contiguous and has the view's shape, whatever the strides.
#pragma once
#include "autograd/tape.h"
#include "kernels/layout.h"

namespace spillway::ops {

/// The same elements, contiguous: x itself if it is.
inline Tensor dense(const Tensor& x) {
  if (!x.defined() || x.is_contiguous()) return x;
  const Tensor copy = empty(x.shape(), x.dtype(), "contiguous copy");
  kernels::copy_view(x, copy);
  return copy;
}
inline autograd::Variable dense(autograd::Variable x) {
  if (!x.value.defined() || x.value.is_contiguous()) return x;
  x.value = dense(x.value);
  x.weight = false;  // a copy lies elsewhere
  return x;
}

}  // namespace spillway::ops
