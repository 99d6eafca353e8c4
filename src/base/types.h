// Defines short names for fixed-width integers, two rounding functions and the binary size units.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway {

using i8 = std::int8_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
constexpr i64 round_up(i64 a, i64 to) { return ceil_div(a, to) * to; }

constexpr i64 kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

}  // namespace spillway
