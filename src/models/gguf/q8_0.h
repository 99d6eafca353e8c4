// ggml's type Q8_0: 32 elements are a scale in f16 and 32 whole numbers from -127 to 127, the bits that ggml's Python package gives. Pure.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway::models {

constexpr i64 kQ8Elems = 32, kQ8Bytes = 34;

/// Whole blocks. False where a number is not finite, or too large for the scale (from 8,321,040 on): then `bytes` is of no use.
bool encode_q8_0(std::span<const float> values, std::span<std::byte> bytes);

}  // namespace spillway::models
