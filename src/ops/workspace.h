// Scratch memory for a kernel, allocated on the current stream for the duration of one call.
#pragma once
#include "tensor/tensor.h"

namespace spillway::ops {

inline Tensor workspace(i64 bytes) { return empty({bytes}, DType::uint8, "kernel workspace"); }

}  // namespace spillway::ops
