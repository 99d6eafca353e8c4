// The fundamental types of PTX.
#pragma once
#include <cstdint>
#include <string_view>

namespace ptx {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;

constexpr u32 kLanes = 32, kAllLanes = ~0u;

enum class Kind : u8 { none, bits, is_unsigned, is_signed, floating, half, brain, predicate };

struct Type {
  Kind kind = Kind::none;
  u8 bytes = 0;     // of all its elements; 0 for predicates
  u8 elements = 1;  // 2 for f16x2 and bf16x2

  bool is_float() const { return kind == Kind::floating || kind == Kind::half || kind == Kind::brain; }
  bool is_signed() const { return kind == Kind::is_signed; }
};

/// Returns the type, or Kind::none if `name` is none.
inline Type type_named(std::string_view name) {
  if (name == "pred") return {Kind::predicate, 0, 1};
  if (name == "f16") return {Kind::half, 2, 1};
  if (name == "f16x2") return {Kind::half, 4, 2};
  if (name == "bf16") return {Kind::brain, 2, 1};
  if (name == "bf16x2") return {Kind::brain, 4, 2};
  if (name == "tf32") return {Kind::bits, 4, 1};
  if (name.size() < 2 || name.size() > 4) return {};
  const Kind kind = name[0] == 'b'   ? Kind::bits
                    : name[0] == 'u' ? Kind::is_unsigned
                    : name[0] == 's' ? Kind::is_signed
                    : name[0] == 'f' ? Kind::floating
                                     : Kind::none;
  const std::string_view bits = name.substr(1);
  const u8 bytes = bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : bits == "128" ? 16 : 0;
  if (kind == Kind::none || bytes == 0 || (kind == Kind::floating && bytes < 4)) return {};
  return {kind, bytes, 1};
}

}  // namespace ptx
