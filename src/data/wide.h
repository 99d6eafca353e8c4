// Stored floating-point numbers as fp64. Pure functions.
#pragma once
#include <bit>
#include <cstring>

#include "tensor/dtype.h"

namespace spillway::data {

/// Of f32, f64, bf16 or f16, little-endian, exactly.
inline double widened(const std::byte* at, DType dtype) {
  const auto load = [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return load(float{});
    case DType::f64:
      return load(double{});
    case DType::bf16:
      return std::bit_cast<float>(static_cast<u32>(load(u16{})) << 16);
    default:
      break;
  }
  const u16 half = load(u16{});
  const u64 sign = static_cast<u64>(half >> 15) << 63, exponent = half >> 10 & 31, mantissa = half & 1023;
  if (exponent == 31) return std::bit_cast<double>(sign | u64{0x7ff} << 52 | mantissa << 42);
  if (exponent == 0) return std::bit_cast<double>(std::bit_cast<u64>(static_cast<double>(mantissa) * 0x1p-24) | sign);
  return std::bit_cast<double>(sign | (exponent + 1023 - 15) << 52 | mantissa << 42);
}

}  // namespace spillway::data
