// Computes the sum of ordered_sum.h on a GPU, in the same order and with bitwise the same results, except that a NaN may differ in its
// bits.
#pragma once
#include "parallel/comm/ordered_sum.h"
#include "tensor/dtype.h"

namespace spillway::parallel {

/// Replaces `own`, which holds the numbers of rank `me`, by the sum over all ranks. Rank r's numbers lie at
/// others + r * stride_bytes; the place for r = `me` is not read. The dtype is f32 or f64. Addresses, stride and
/// size must be multiples of 16 bytes. The work is put on the queue of the current stream.
void ordered_sum_on_gpu(std::byte* own, const std::byte* others, i64 stride_bytes, int me, int ranks, DType dtype, i64 bytes);

}  // namespace spillway::parallel
