// Scratch memory of a kernel: bytes from the stream in force, for the length of one call.
#pragma once
#include "tensor/tensor.h"

namespace spillway::ops {

inline Tensor workspace(i64 bytes) { return empty({bytes}, DType::uint8, "kernel workspace"); }

}  // namespace spillway::ops
