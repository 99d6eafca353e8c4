// Encodes the element type Q8_0 of ggml: a block of 32 elements has a scale in f16 and 32 integers from -127 to 127. The bytes are the same
// as those that ggml's Python package writes. Pure function.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway::models {

constexpr i64 kQ8Elems = 32, kQ8Bytes = 34;

/// Encodes whole blocks of 32 values. Returns false if a number is not finite, or if its
/// magnitude is too large for an f16 scale (8,321,040 or more); `bytes` is then undefined.
bool encode_q8_0(std::span<const float> values, std::span<std::byte> bytes);

}  // namespace spillway::models
