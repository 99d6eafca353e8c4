// Broadcasting as in numpy: the common shape of several inputs, and the gradient of an input that was broadcast.
#pragma once
#include <initializer_list>

#include "tensor/tensor.h"

namespace spillway::ops {

/// Returns the shape to which all inputs broadcast. Throws Error(bug) in the name of `op` if there is none or the dtypes differ.
Shape stretched_shape(const char* op, std::initializer_list<Tensor> inputs);

/// Returns the gradient of an input of shape `wanted` that was broadcast: the sum over its broadcast axes, first axis first.
Tensor sum_to(Tensor gradient, const Shape& wanted);

}  // namespace spillway::ops
