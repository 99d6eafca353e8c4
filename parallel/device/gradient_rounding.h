// Rounds gradients to bf16, as an option. A finished fp32 gradient is rounded once, to the nearest value with ties to even, and its norm is
// computed from the rounded numbers. The rounding is an approximation, but its result is bitwise the same on a CPU and on a GPU.
#pragma once
#include <vector>

#include "base/types.h"
#include "tensor/dtype.h"

namespace spillway::parallel {

/// Rounds whole fp32 tiles at `base`. For each tile it writes one value of `square_sums` (optim::tile_square_sum of the rounded numbers).
/// The result overwrites the same memory: in place if `into` is fp32, packed into the first half if `into` is bf16. Runs on the threads of
/// the current stream.
void round_gradient(std::byte* base, DType into, std::span<double> square_sums);

/// Rounds tiles in the memory of the current stream's GPU, with bitwise the same results as round_gradient(), but computes no sums. The
/// work is put on the stream's queue. Throws Error(bug) in a build without CUDA.
void round_gradient_on_gpu(std::byte* base, DType into, i64 tiles);

}  // namespace spillway::parallel
