// f16, bf16 and TF32: conversions from and to float, and exact to double.
#pragma once
#include <bit>
#include <cfenv>
#include <cmath>

#include "ptx/types.h"

namespace ptx {

inline float from_brain(u16 bits) { return std::bit_cast<float>(u32{bits} << 16); }
inline float from_half(u16 bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }

/// Rounds a double to a format with these exponent and fraction bits. NaN becomes the canonical NaN, whose bits but the sign are ones.
/// `rounding`: 0 to nearest even, or FE_TOWARDZERO.
inline u32 rounded(double x, int exponent_bits, int fraction_bits, int rounding) {
  const u32 infinity = ((1u << exponent_bits) - 1) << fraction_bits;
  const u32 sign = std::signbit(x) ? 1u << (exponent_bits + fraction_bits) : 0;
  if (std::isnan(x)) return (1u << (exponent_bits + fraction_bits)) - 1;
  const double size = std::fabs(x);
  if (std::isinf(size)) return sign | infinity;
  if (size == 0) return sign;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = std::ilogb(size);
  const bool is_subnormal = exponent < 1 - bias;
  if (is_subnormal) exponent = 1 - bias;
  const double units = std::ldexp(size, fraction_bits - exponent);
  const auto whole = static_cast<u64>(rounding == FE_TOWARDZERO ? std::trunc(units) : std::nearbyint(units));
  // A carry out of the fraction goes into the exponent, as it should.
  const u64 bits = is_subnormal ? whole : (static_cast<u64>(exponent + bias) << fraction_bits) + whole - (u64{1} << fraction_bits);
  if (bits >= infinity) return sign | (rounding == FE_TOWARDZERO ? infinity - 1 : infinity);
  return sign | static_cast<u32>(bits);
}
inline u16 to_half(double x, int rounding = 0) { return static_cast<u16>(rounded(x, 5, 10, rounding)); }
inline u16 to_brain(double x, int rounding = 0) { return static_cast<u16>(rounded(x, 8, 7, rounding)); }

/// The same, of a float and to nearest, faster.
inline u16 float_to_half(float x) { return x == x ? std::bit_cast<u16>(static_cast<_Float16>(x)) : u16{0x7fff}; }
inline u16 float_to_brain(float x) {
  const auto bits = std::bit_cast<u32>(x);
  return x == x ? static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16) : u16{0x7fff};
}

}  // namespace ptx
