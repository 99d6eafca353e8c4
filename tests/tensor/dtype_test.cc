#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spillway::dtype_test {
namespace {

float number(u16 bits) { return widen(BFloat16{bits}); }
u16 rounded(float x) { return narrow<BFloat16>(x).bits; }

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) {
  for (u32 bits = 0; bits < 0x10000; ++bits) {
    const float x = number(static_cast<u16>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(number(rounded(x)))) << bits;
    } else {
      ASSERT_EQ(rounded(x), bits);
    }
  }
}

// Tests numbers between any two neighbouring bf16 values: the midpoint is rounded to the even neighbour, any other number to the nearer
// one. The neighbours include denormals and infinity.
TEST(BFloat16, RoundsToNearestTiesToEven) {
  for (u32 sign : {0u, 0x8000u}) {
    for (u32 below = 0; below < 0x7f80; ++below) {
      const u32 middle = ((sign | below) << 16) + 0x8000;
      const auto lower = static_cast<u16>(sign | below), upper = static_cast<u16>(sign | (below + 1));
      ASSERT_EQ(rounded(std::bit_cast<float>(middle - 1)), lower);
      ASSERT_EQ(rounded(std::bit_cast<float>(middle)), below % 2 == 0 ? lower : upper);
      ASSERT_EQ(rounded(std::bit_cast<float>(middle + 1)), upper);
    }
  }
}

TEST(BFloat16, NotANumberStaysOne) {
  for (u32 bits : {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(number(rounded(std::bit_cast<float>(bits))))) << std::hex << bits;
  }
}

float half(u16 bits) { return widen(Float16{bits}); }
u16 to_half(float x) { return narrow<Float16>(x).bits; }
// Converts f16 with the compiler's own _Float16, as the reference.
float reference(u16 bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
u16 to_reference(float x) { return std::bit_cast<u16>(static_cast<_Float16>(x)); }

TEST(Float16, EveryValueIsTheCompilersAndSurvivesTheRoundTrip) {
  for (u32 bits = 0; bits < 0x10000; ++bits) {
    const float x = half(static_cast<u16>(bits)), want = reference(static_cast<u16>(bits));
    ASSERT_EQ(std::bit_cast<u32>(x), std::bit_cast<u32>(want) | (std::isnan(x) ? 0x400000u : 0)) << bits;
    ASSERT_EQ(to_half(x), bits | (std::isnan(x) ? 0x200u : 0)) << bits;
  }
}

// Tests the midpoint between any two neighbouring f16 values and the numbers next to it
// on both sides, including denormals and the step from the largest number to infinity.
TEST(Float16, RoundsToNearestTiesToEven) {
  for (const float sign : {1.0f, -1.0f}) {
    for (u32 below = 0; below < 0x7c00; ++below) {
      const auto lower = static_cast<u16>(below), upper = static_cast<u16>(below + 1);
      const float next = upper == 0x7c00 ? 65536 : half(upper), middle = half(lower) + (next - half(lower)) / 2;
      for (const float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, INFINITY), half(lower), half(upper)}) {
        ASSERT_EQ(to_half(sign * x), to_reference(sign * x)) << x;
      }
      ASSERT_EQ(to_half(middle), below % 2 == 0 ? lower : upper);
    }
  }
}

TEST(Float16, AnyFloatRoundsAsTheCompilersDoes) {
  for (u64 bits = 0; bits < 0x100000000; bits += 4099) {
    const auto x = std::bit_cast<float>(static_cast<u32>(bits));
    ASSERT_TRUE(std::isnan(x) || to_half(x) == to_reference(x)) << std::hex << bits;
  }
  for (const float x : {0x1p-149f, 0x1p-126f, 0x1p-25f, 65519.996f, 65520.0f, 65535.996f, 65536.0f, 0x1.fffffep127f})
    EXPECT_EQ(to_half(x), to_reference(x)) << x;
  for (u32 bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7fc00000u}) EXPECT_TRUE(std::isnan(half(to_half(std::bit_cast<float>(bits)))));
}

TEST(DType, WhatIsComputedInFp64StaysThere) {
  EXPECT_EQ(wide_dtype(DType::f64), DType::f64);
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(wide_dtype(t), DType::f32);
}

}  // namespace
}  // namespace spillway::dtype_test
