// Encodes optimizer moments in 8 bits with the dynamic tree type of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022),
// over blocks of 256 elements with the largest magnitude as scale. The position of a code's leading one bit selects a decade (a decimal
// exponent); the bits behind it are a linear fraction of that decade. m has a sign and 7 bits, magnitudes 10^-6 to 1; v has 8 bits, 10^-7
// to 1. A code stands for the upper end of the interval that it covers, so the value 1 has a code. Hence the largest decoded magnitude is
// the scale again, and encoding decoded values gives back the same codes. The value as a function of the code is a chain of straight lines,
// one for each decade. So stochastic rounding between neighbouring codes is done by adding noise to the fractional code. A positive v never
// becomes 0, because the next step would divide by little more than eps. If an element of a block is not finite, the whole block decodes to
// NaN; if the largest magnitude of a block is below 2^-100, the block decodes to zeros. Scalar code, the reference for the vector kernels;
// pure functions.
#pragma once
#include <algorithm>
#include <bit>
#include <span>

#include "base/types.h"
#include "optim/bf16.h"

namespace spillway::optim {

/// The chain of lines that maps codes to values, one line for each decade:
/// the codes up to `top_code` stand for values up to `top`, spaced by `step`.
struct CodeLines {
  int lines;
  alignas(32) float top[8], top_code[8], step[8], codes_per_unit[8];
};

template <bool kSigned>
constexpr CodeLines make_code_lines() {
  constexpr double kTops[] = {1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  CodeLines chain{.lines = kSigned ? 7 : 8};
  for (int l = 0; l < chain.lines; ++l) {
    const double top = kTops[l + 8 - chain.lines], codes = static_cast<double>(1 << l), width = l == 0 ? top : 0.9 * top;
    chain.top[l] = static_cast<float>(top);
    chain.top_code[l] = static_cast<float>(2 * codes - 1);
    chain.step[l] = static_cast<float>(width / codes);
    chain.codes_per_unit[l] = static_cast<float>(codes / width);
  }
  return chain;
}

template <bool kSigned>
constexpr CodeLines kCodeLines = make_code_lines<kSigned>();

/// Returns the fraction of the scale that the code of this magnitude stands for.
template <bool kSigned>
constexpr float code_value(int code) {
  constexpr CodeLines chain = kCodeLines<kSigned>;
  const int l = std::max(static_cast<int>(std::bit_width(static_cast<u32>(code))) - 1, 0);
  return chain.top[l] - (chain.top_code[l] - static_cast<float>(code)) * chain.step[l];
}

/// Inverts code_value: maps a value in [0, 1] to a position on the code axis, which may lie between two codes. The code as a function of
/// the value is concave, so the result is the minimum over the lines of the chain.
template <bool kSigned>
constexpr float code_place(float value) {
  constexpr CodeLines chain = kCodeLines<kSigned>;
  float place = chain.top_code[chain.lines - 1];
  for (int l = 0; l < chain.lines; ++l) place = std::min(place, chain.top_code[l] - (chain.top[l] - value) * chain.codes_per_unit[l]);
  return std::max(place, 0.0f);
}

constexpr float decode_m(u8 code, float scale) {
  const int value = code < 128 ? code : code - 256;
  return value < 0 ? -(code_value<true>(-value) * scale) : code_value<true>(value) * scale;
}

constexpr float decode_v(u8 code, float scale) { return code_value<false>(code) * scale; }

/// Encodes x, an element of a block whose scale block_scale computed, so that |x| <= scale. A uniformly distributed `noise` rounds
/// stochastically; a noise of 0x8000 rounds to nearest.
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

/// Returns the largest magnitude of the block. Returns 0 if the block is to be
/// stored as zeros, and NaN if an element is not finite; all codes are then 0.
inline float block_scale(std::span<const float> block) {
  u32 largest = 0;  // the largest magnitude, as the bits of the float: these compare like integers, with NaN last
  for (float x : block) largest = std::max(largest, std::bit_cast<u32>(x) & 0x7fffffff);
  if (largest >= 0x7f800000) return std::bit_cast<float>(kNanBits);
  const auto scale = std::bit_cast<float>(largest);
  return scale < 0x1p-100f ? 0 : scale;
}

}  // namespace spillway::optim
