// Shapes that stretch as numpy does: the common one, and what becomes of a stretched input's gradient.
#pragma once
#include <initializer_list>

#include "tensor/tensor.h"

namespace spillway::ops {

/// The shape that all stretch to. Throws Error(bug) in the name of `op` on shapes that do not, or on types that differ.
Shape stretched_shape(const char* op, std::initializer_list<Tensor> inputs);

/// The gradient of an input of shape `wanted` that was stretched: the sum over the stretched axes, the first axis first.
Tensor sum_to(Tensor gradient, const Shape& wanted);

}  // namespace spillway::ops
