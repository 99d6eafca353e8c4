// Prepares an op's inputs for kernels: makes them contiguous, views them as matrices of rows, and allocates scratch memory. The copy that
// makes a strided view contiguous is not recorded on the tape. Gradients are contiguous whatever the strides of the tensor, so the
// gradient of the copy is also the gradient of the view.
#pragma once
#include "autograd/tape.h"
#include "kernels/layout/layout.h"

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

/// Returns a view of x[..., C] as [rows, C].
inline Tensor as_rows(const Tensor& x) { return x.reshape({x.elems() / x.size(-1), x.size(-1)}); }

/// Returns scratch memory for a kernel, allocated on the current stream for the duration of one call.
inline Tensor workspace(i64 bytes) { return empty({bytes}, DType::uint8, "kernel workspace"); }

}  // namespace spillway::ops
