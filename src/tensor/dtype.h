// Element types by their field names. bf16 and f16 are storage types: kernels widen what they load, compute in Wide<T> and round what they
// store. The rounding of bf16 is done with integers, so that it is the same everywhere and keeps denormals.
#pragma once
#include <bit>
#include <string_view>
#include <type_traits>

#include "base/types.h"

namespace spillway {

enum class DType : u8 { f32, f64, bf16, f16, int32, int64, uint8, boolean };

/// 2-byte storage of a bfloat16 / IEEE half.
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

constexpr bool is_floating(DType t) { return t == DType::f32 || t == DType::f64 || t == DType::bf16 || t == DType::f16; }

/// What sums, statistics and weight gradients of tensors of this type have: f64 of f64, f32 of every other.
constexpr DType wide_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// The type to compute in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

template <class T>
constexpr Wide<T> widen(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return std::bit_cast<float>(static_cast<u32>(x.bits) << 16);
  } else {
    return x;
  }
}

/// To the nearest T, ties to even; NaN stays NaN, quiet.
template <class T>
constexpr T narrow(Wide<T> x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const u32 bits = std::bit_cast<u32>(x), rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return {static_cast<u16>((nan ? bits | 0x400000u : rounded) >> 16)};
  } else {
    return x;
  }
}

/// "f32", "bool" …
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
