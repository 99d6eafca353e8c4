#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "kernels/products/quantized.h"

namespace spillway::kernels {

const std::array<float, 16> kNf4Levels = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

namespace {

// The midpoints between adjacent levels of nf4.
const std::array<float, 15> kNf4Limits = [] {
  std::array<float, 15> limits;
  for (size_t i = 0; i < limits.size(); ++i) limits[i] = (kNf4Levels[i] + kNf4Levels[i + 1]) / 2;
  return limits;
}();

using Block = std::span<const float>;

// Returns the largest magnitude in a block, or NaN if a value is not finite.
float largest(Block values) {
  float most = 0;
  for (const float x : values) {
    if (!std::isfinite(x)) return std::numeric_limits<float>::quiet_NaN();
    most = std::max(most, std::fabs(x));
  }
  return most;
}

// Returns the int8 code of x. If the scale of the block is NaN, the code is 1, so that the value becomes NaN.
u8 int8_code(float x, float scale) {
  if (std::isnan(scale)) return 1;
  if (scale == 0) return 0;
  return static_cast<u8>(static_cast<i8>(std::clamp(std::nearbyint(x / scale), -127.0f, 127.0f)));
}

u8 nf4_code(float x, float scale) {
  constexpr u8 kZero = 7;
  if (std::isnan(scale)) return 0;
  if (scale == 0) return kZero;
  const float of_one = x / scale;
  int code = 0;
  for (const float limit : kNf4Limits) code += of_one >= limit;
  return static_cast<u8>(code);
}

}  // namespace

void quantize(WeightFormat format, std::span<const float> values, std::byte* unit) {
  require(values.size() <= static_cast<size_t>(kUnitValues) && format != WeightFormat::plain,
          "[quantize] expected at most the values of one unit, and a format other than plain");
  std::array<float, kUnitValues> all{};
  std::ranges::copy(values, all.begin());
  if (format == WeightFormat::bf16) {
    for (const float x : all) {
      const BFloat16 rounded = narrow<BFloat16>(x);
      std::memcpy(std::exchange(unit, unit + sizeof rounded), &rounded, sizeof rounded);
    }
    return;
  }
  std::array<float, 2> scales;
  std::byte* code = unit + sizeof scales;
  for (size_t b = 0; b < scales.size(); ++b) {
    const Block block = Block(all).subspan(b * kScaledValues, kScaledValues);
    const float most = largest(block);
    if (format == WeightFormat::int8) {
      scales[b] = most / 127;
      for (const float x : block) *code++ = static_cast<std::byte>(int8_code(x, scales[b]));
    } else {
      scales[b] = most;
      for (size_t j = 0; j < kScaledValues / 2; ++j) {
        const int low = nf4_code(block[j], most), high = nf4_code(block[j + kScaledValues / 2], most);
        *code++ = static_cast<std::byte>(low | high << 4);
      }
    }
  }
  std::memcpy(unit, scales.data(), sizeof scales);
}

}  // namespace spillway::kernels
