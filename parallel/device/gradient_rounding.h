// Gradients by choice in bf16: a finished fp32 gradient is rounded to nearest, ties to even, once, and its norm is that of the rounded
// numbers. An approximation; where it happens changes no bit.
#pragma once
#include <vector>

#include "base/types.h"
#include "tensor/dtype.h"

namespace spillway::parallel {

/// Rounds whole fp32 tiles at `base`, one for each of `square_sums` (optim::tile_square_sum of the rounded numbers, written). Into the same
/// memory: as fp32 in place, or (`into` bf16) packed from `base` on, in half of it. On the current stream's threads.
void round_gradient(std::byte* base, DType into, std::span<double> square_sums);

/// The rounding alone, the same bits, of tiles in the memory of the GPU whose queue is that of the stream in force; put on it. In a build
/// without CUDA Error(bug).
void round_gradient_on_gpu(std::byte* base, DType into, i64 tiles);

}  // namespace spillway::parallel
