// 8-bit moments: the dynamic tree type of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022), over blocks of 256
// elements with the largest magnitude as scale. The place of a code's leading one is a decimal exponent, the bits behind it a linear
// fraction of that decade. m: sign and 7 bits, magnitudes 10^-6 to 1; v: 8 bits, 10^-7 to 1. Of each cell we take the upper edge, so that
// 1 is a code: the scale is found again in the decoded values, and encoding what was decoded gives back every code.
// Codes rise along a chain of straight lines, which makes rounding stochastically between neighbours an addition on the code axis.
// A positive v never becomes 0: the next step would divide by little more than eps. A block with a non-finite element decodes to NaN
// throughout, one whose largest element is below 2^-100 to zeros. Scalar code, right by definition; pure functions.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "base/types.h"
#include "optim/bf16.h"

namespace spillway::optim {

/// One line of the chain, a decade: codes up to `top_code` stand for values up to `top`, `step` apart.
struct CodeLine {
  float top, top_code, step, codes_per_unit;
};

template <bool kSigned>
constexpr auto make_code_lines() {
  constexpr double kTops[] = {1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  std::array<CodeLine, kSigned ? 7 : 8> lines{};
  for (size_t l = 0; l < lines.size(); ++l) {
    const double top = kTops[l + (kSigned ? 1 : 0)], codes = static_cast<double>(1 << l), width = l == 0 ? top : 0.9 * top;
    lines[l] = {static_cast<float>(top), static_cast<float>(2 * codes - 1), static_cast<float>(width / codes),
                static_cast<float>(codes / width)};
  }
  return lines;
}

/// Ascending: seven for m, eight for v.
template <bool kSigned>
constexpr auto kCodeLines = make_code_lines<kSigned>();

/// The fraction of the scale that magnitude `code` stands for: the highest of the lines, for the chain is convex.
template <bool kSigned>
constexpr float code_value(int code) {
  float value = 0;
  for (const CodeLine& line : kCodeLines<kSigned>) {
    value = std::max(value, line.top - (line.top_code - static_cast<float>(code)) * line.step);
  }
  return value;
}

/// The other way, in [0, 1] to codes and fractions of codes: the lowest of the lines.
template <bool kSigned>
constexpr float code_place(float value) {
  float place = kCodeLines<kSigned>.back().top_code;
  for (const CodeLine& line : kCodeLines<kSigned>) {
    place = std::min(place, line.top_code - (line.top - value) * line.codes_per_unit);
  }
  return std::max(place, 0.0f);
}

constexpr float decode_m(u8 code, float scale) {
  const int value = static_cast<i8>(code);
  return value < 0 ? -(code_value<true>(-value) * scale) : code_value<true>(value) * scale;
}

constexpr float decode_v(u8 code, float scale) { return code_value<false>(code) * scale; }

/// `noise` uniform: stochastic; 0x8000: to nearest. |x| <= scale, both as block_scale saw them.
constexpr u8 encode_m(float x, float scale, u16 noise) {
  if (!(scale > 0)) return 0;
  const float magnitude = std::bit_cast<float>(std::bit_cast<u32>(x) & 0x7fffffff) / scale;
  const int code = std::min(static_cast<int>(code_place<true>(magnitude) + static_cast<float>(noise) * 0x1p-16f), 127);
  return static_cast<u8>(x < 0 ? -code : code);
}

constexpr u8 encode_v(float x, float scale, u16 noise) {
  if (!(scale > 0)) return 0;
  const auto code = static_cast<int>(code_place<false>(x / scale) + static_cast<float>(noise) * 0x1p-16f);
  return static_cast<u8>(std::clamp(code, x > 0 ? 1 : 0, 255));
}

/// The largest magnitude; 0 for a block that is stored as zeros, NaN for one that is not finite: all codes are then 0.
inline float block_scale(std::span<const float> block) {
  u32 largest = 0;  // magnitudes order as integers, NaN last
  for (float x : block) largest = std::max(largest, std::bit_cast<u32>(x) & 0x7fffffff);
  if (largest >= 0x7f800000) return std::bit_cast<float>(kNanBits);
  const auto scale = std::bit_cast<float>(largest);
  return scale < 0x1p-100f ? 0 : scale;
}

}  // namespace spillway::optim
