// Broadcasting as in numpy: the common shape of several inputs, and the gradient of an input that was broadcast.
#pragma once
#include <initializer_list>

#include "tensor/tensor.h"

namespace spillway::ops {

/// Returns the shape to which all inputs broadcast. If there is no such shape or the dtypes differ, throws an Error(bug) that names `op`.
Shape stretched_shape(const char* op, std::initializer_list<Tensor> inputs);

/// Returns the gradient of an input of shape `wanted` that was broadcast: the sum of `gradient` over the broadcast axes, one axis after the
/// other from the first on.
Tensor sum_to(Tensor gradient, const Shape& wanted);

}  // namespace spillway::ops
