#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spillway {
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

// Between any two neighbours: the half goes to the even one, what is nearer to one goes there. Denormals, and the last step to infinity,
// too.
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

TEST(DType, WhatIsComputedInFp64StaysThere) {
  EXPECT_EQ(wide_dtype(DType::f64), DType::f64);
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(wide_dtype(t), DType::f32);
}

}  // namespace
}  // namespace spillway
