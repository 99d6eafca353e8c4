// Defines element types and their conversions. bf16 and f16 are storage types: kernels widen what they load, compute in Wide<T> and round
// what they store to the nearest value, ties to even. Denormals and infinities are kept. bf16 is converted with integer arithmetic
// everywhere. f16 (IEEE 754 binary16) is converted with the processor's instructions where there are any. All conversions give bitwise
// equal results, except that a GPU produces another NaN.
#pragma once
#include <bit>
#include <string_view>
#include <type_traits>

#include "base/types.h"

namespace spillway {

enum class DType : u8 { f32, f64, bf16, f16, int32, int64, uint8, boolean };

/// The 2-byte storage of a bfloat16 or IEEE half-precision number.
struct BFloat16 {
  u16 bits;
};
struct Float16 {
  u16 bits;
};

constexpr i64 size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::int64:
      return 8;
    case DType::f32:
    case DType::int32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::uint8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

/// Returns whether `t` is a 2-byte floating type. Values are rounded when they are stored in such a type.
constexpr bool is_half(DType t) { return t == DType::bf16 || t == DType::f16; }

constexpr bool is_floating(DType t) { return t == DType::f32 || t == DType::f64 || is_half(t); }

/// Returns the type of sums, statistics and weight gradients of tensors of type `t`: f64 for f64, f32 for every other type.
constexpr DType wide_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

/// The type in which kernels compute with values of type T.
template <class T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

/// Converts f16 to f32 with integer operations and fp32 additions. A NaN becomes a quiet NaN with the upper bits of its payload.
constexpr float widen_f16(u16 half) {
  const u32 sign = (half & 0x8000u) << 16, magnitude = (half & 0x7fffu) << 13, exponent = magnitude & 0x0f800000u;
  if (exponent == 0x0f800000u) return std::bit_cast<float>(sign | 0x70000000u | magnitude | (magnitude > exponent ? 0x400000u : 0));
  if (exponent != 0) return std::bit_cast<float>(sign | (magnitude + 0x38000000u));
  return std::bit_cast<float>(sign | std::bit_cast<u32>(std::bit_cast<float>(magnitude | 0x38800000u) - 0x1p-14f));
}
constexpr u16 round_f16(float x) {
  const u32 bits = std::bit_cast<u32>(x), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<u16>((bits >> 16) & 0x8000u);
  const auto with_sign = [sign](u32 half) { return static_cast<u16>(sign | half); };
  if (magnitude > 0x7f800000u) return with_sign(0x7e00u | ((magnitude >> 13) & 0x3ffu));
  // A magnitude of 2^16 or more becomes infinity. The last line of this function also rounds values just below 2^16 to infinity.
  if (magnitude >= 0x47800000u) return with_sign(0x7c00u);
  // The f16 result is denormal. The last bit of the sum below has the value of the smallest f16 denormal, so the addition rounds as needed.
  if (magnitude < 0x38800000u) return with_sign(std::bit_cast<u32>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u);
  return with_sign((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
}

template <class T>
constexpr Wide<T> widen(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return std::bit_cast<float>(static_cast<u32>(x.bits) << 16);
  } else if constexpr (std::is_same_v<T, Float16>) {
#ifdef __CUDA_ARCH__
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
#else
    return widen_f16(x.bits);
#endif
  } else {
    return x;
  }
}

/// Rounds `x` to the nearest value of T, ties to even. A NaN becomes a quiet NaN.
template <class T>
constexpr T narrow(Wide<T> x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const u32 bits = std::bit_cast<u32>(x), rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return {static_cast<u16>((nan ? bits | 0x400000u : rounded) >> 16)};
  } else if constexpr (std::is_same_v<T, Float16>) {
#ifdef __CUDA_ARCH__
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return {bits};
#else
    return {round_f16(x)};
#endif
  } else {
    return x;
  }
}

/// Returns the type's name: "f32", "bool", …
std::string_view to_string(DType t);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<spillway::i32> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<spillway::i64> {
  static constexpr DType value = DType::int64;
};
template <>
struct DTypeOf<spillway::u8> {
  static constexpr DType value = DType::uint8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};

}  // namespace spillway
