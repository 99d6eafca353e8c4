// Views a batch of any shape as the matrix of rows that kernels take.
#pragma once
#include "tensor/tensor.h"

namespace spillway::ops {

/// Returns a view of x[..., C] as [rows, C].
inline Tensor as_rows(const Tensor& x) { return x.reshape({x.elems() / x.size(-1), x.size(-1)}); }

}  // namespace spillway::ops
