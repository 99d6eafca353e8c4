#include "models/gguf/q8_0.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tensor/dtype.h"

namespace spillway::models {

bool encode_q8_0(std::span<const float> values, std::span<std::byte> bytes) {
  constexpr auto kElems = static_cast<size_t>(kQ8Elems), kBytes = static_cast<size_t>(kQ8Bytes);
  require(values.size() % kElems == 0 && bytes.size() == values.size() / kElems * kBytes,
          "[q8_0] expected whole blocks of 32 elements and 34 bytes for each");
  for (; !values.empty(); values = values.subspan(kElems), bytes = bytes.subspan(kBytes)) {
    float largest = 0;
    for (const float x : values.first(kElems)) {
      if (!std::isfinite(x)) return false;
      largest = std::max(largest, std::abs(x));
    }
    const float scale = largest / 127;
    const u16 half = round_f16(scale);
    if ((half & 0x7c00) == 0x7c00) return false;
    // If 1 / scale is infinite, the scale is so small that f16 rounds it to zero, so the values are written as zeros.
    const float inverse = scale == 0 || std::isinf(1 / scale) ? 0 : 1 / scale;
    std::memcpy(bytes.data(), &half, sizeof half);
    for (size_t i = 0; i < kElems; ++i) bytes[sizeof half + i] = static_cast<std::byte>(static_cast<i8>(std::round(values[i] * inverse)));
  }
  return true;
}

}  // namespace spillway::models
