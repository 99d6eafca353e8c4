// Optional rounding of gradients to bf16: a finished fp32 gradient is rounded once, to nearest with ties to even, and its norm is computed
// from the rounded numbers. This is an approximation, but where it is computed changes no bit.
#pragma once
#include <vector>

#include "base/types.h"
#include "tensor/dtype.h"

namespace spillway::parallel {

/// Rounds whole fp32 tiles at `base` and writes one value of `square_sums` for each (optim::tile_square_sum of the rounded numbers). The
/// result overwrites the same memory: fp32 in place or, if `into` is bf16, packed into its first half. Runs on the current stream's
/// threads.
void round_gradient(std::byte* base, DType into, std::span<double> square_sums);

/// Only rounds, to the same bits, tiles in the memory of the current stream's GPU; put on that stream's queue. Throws Error(bug) in a build
/// without CUDA.
void round_gradient_on_gpu(std::byte* base, DType into, i64 tiles);

}  // namespace spillway::parallel
