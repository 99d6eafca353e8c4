// The sum of squares of gradients, from which norms are computed, without copying the gradients to host memory. Thread-safe.
#pragma once
#include <span>

#include "tensor/tensor.h"

namespace spillway::eager {

/// Returns the sum of the squares of all elements, in fp64 and in the order of optim/norm.h: tile after tile (16,384 elements) of one
/// tensor after the other. The CPU and a GPU give the same bits; from a GPU only a number for each tile is copied. The gradients are
/// contiguous, f32, f64 or bf16, and in the memory of the current stream's device.
double square_sum(std::span<const Tensor> gradients);

}  // namespace spillway::eager
