// Tests the split of an fp32 master weight into a bf16 weight and a 16-bit remainder.
#include "optim/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace spillway::optim::bf16_test {
namespace {

constexpr bool comes_back(u32 bits) {
  const auto master = std::bit_cast<float>(bits);
  return std::bit_cast<u32>(join_master(weight_of_master(master), remainder_of_master(master))) == bits;
}

// Shows that every bf16 weight, with a remainder near 0, one half or one spacing, gives back its fp32 master.
TEST(SplitMaster, ComesBackAtEveryEdge) {
  for (u32 upper = 0; upper < 0x10000; ++upper) {
    for (u32 lower : {0x0000u, 0x0001u, 0x1234u, 0x7fffu, 0x8000u, 0x8001u, 0xfffeu, 0xffffu}) {
      ASSERT_TRUE(comes_back(upper << 16 | lower)) << upper << ' ' << lower;
    }
  }
}

TEST(SoakSplitMaster, IsABijectionOnAllPatterns) {
  u32 lost = 0, bits = 0;
  do lost += !comes_back(bits);
  while (++bits != 0);
  EXPECT_EQ(lost, 0u);
}

TEST(SplitMaster, WeightIsTheNearestTiesAwayFromZero) {
  const auto weight = [](float master) { return widen_bf16(weight_of_master(master)); };
  EXPECT_EQ(weight(1 + 0x1p-8f), 1 + 0x1p-7f);  // a number halfway between two bf16 values is rounded away from zero
  EXPECT_EQ(weight(-1 - 0x1p-8f), -1 - 0x1p-7f);
  EXPECT_EQ(weight(1 + 3 * 0x1p-8f), 1 + 0x1p-6f);
  EXPECT_EQ(weight(1 + 0x1p-8f - 0x1p-23f), 1);
  EXPECT_EQ(weight(0x1p-133f), 0x1p-133f);  // 2^-133 is the smallest positive bf16
  EXPECT_EQ(weight(0x1p-134f), 0x1p-133f);
  EXPECT_TRUE(std::signbit(weight(-0.0f)));
  EXPECT_EQ(weight(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
}

TEST(SplitMaster, BeyondTheLargestBf16TheWeightIsInfiniteAndTheMasterIsNot) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(widen_bf16(weight_of_master(largest)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(join_master(weight_of_master(largest), remainder_of_master(largest)), largest);
  EXPECT_EQ(widen_bf16(weight_of_master(-largest)), -std::numeric_limits<float>::infinity());
}

TEST(SplitMaster, ACanonicalNanIsANanWeight) {
  for (u32 bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    const float master = canonical(std::bit_cast<float>(bits));
    EXPECT_EQ(std::bit_cast<u32>(master), 0x7fc00000u);
    EXPECT_TRUE(std::isnan(widen_bf16(weight_of_master(master))));
    EXPECT_TRUE(std::isnan(join_master(weight_of_master(master), remainder_of_master(master))));
  }
  EXPECT_EQ(canonical(1.5f), 1.5f);
  // A NaN with these bits would be rounded to the weight 0. NaN masters must therefore be canonical.
  EXPECT_FALSE(std::isnan(widen_bf16(weight_of_master(std::bit_cast<float>(0xffffffffu)))));
}

// Rounding is unbiased: of 2^16 noise values, as many round up as the lower 16 bits of the fp32 number say.
TEST(RoundMomentBf16, IsUnbiased) {
  for (u32 lower : {0u, 1u, 0x4000u, 0x8000u, 0xffffu}) {
    u32 ups = 0;
    for (u32 noise = 0; noise < 0x10000; ++noise) {
      const u16 rounded = round_moment_bf16(std::bit_cast<float>(0x3f800000u | lower), static_cast<u16>(noise));
      ASSERT_TRUE(rounded == 0x3f80 || rounded == 0x3f81);
      ups += rounded == 0x3f81;
    }
    EXPECT_EQ(ups, lower);
  }
}

TEST(RoundMomentBf16, KeepsInfinityAndNan) {
  for (u32 noise : {0u, 0x8000u, 0xffffu}) {
    EXPECT_EQ(round_moment_bf16(std::numeric_limits<float>::infinity(), static_cast<u16>(noise)), 0x7f80);
    EXPECT_EQ(round_moment_bf16(-std::numeric_limits<float>::infinity(), static_cast<u16>(noise)), 0xff80);
    EXPECT_EQ(round_moment_bf16(std::bit_cast<float>(0xffffffffu), static_cast<u16>(noise)), 0x7fc0);
    EXPECT_EQ(round_moment_bf16(std::bit_cast<float>(0x7f800001u), static_cast<u16>(noise)), 0x7fc0);
  }
}

}  // namespace
}  // namespace spillway::optim::bf16_test
