// Element types by their field names. bf16 and f16 are storage types here; arithmetic on them is the kernels' business.
#pragma once
#include <string_view>

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
    case DType::int64: return 8;
    case DType::f32:
    case DType::int32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::uint8:
    case DType::boolean: return 1;
  }
  return 0;
}

constexpr bool is_floating(DType t) { return t == DType::f32 || t == DType::f64 || t == DType::bf16 || t == DType::f16; }

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
