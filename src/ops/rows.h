// A batch of any shape as the matrix that kernels take.
#pragma once
#include "tensor/tensor.h"

namespace spillway::ops {

/// [..., C] as [rows, C]: a view.
inline Tensor as_rows(const Tensor& x) { return x.reshape({x.elems() / x.size(-1), x.size(-1)}); }

}  // namespace spillway::ops
