// ordered_sum.h on a GPU: the same order, the same bits (of a NaN, that it is one).
#pragma once
#include "parallel/comm/ordered_sum.h"
#include "tensor/dtype.h"

namespace spillway::parallel {

/// `own`, rank `me`'s numbers, becomes the sum over all ranks; rank r's lie at others + r * stride_bytes, of `me` nothing is looked at
/// there. f32 or f64, addresses and distances whole 16 bytes, and a whole number of these. On the queue of the stream in force.
void ordered_sum_on_gpu(std::byte* own, const std::byte* others, i64 stride_bytes, int me, int ranks, DType dtype, i64 bytes);

}  // namespace spillway::parallel
