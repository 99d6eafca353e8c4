// Compares the 8-bit codes of optimizer moments with the description of the type: the position of the leading
// one gives the decade, the remaining bits a linear fraction. Decoding and encoding again loses nothing.
#include "optim/moments8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace spillway::optim::moments8_test {
namespace {

// Returns the value of a code, computed directly from the type's description. `bits` is 8 for v and 7 for the magnitude of m.
double by_words(int code, int bits) {
  if (code == 0) return 0;
  int leading = 0;
  while (code >> (leading + 1)) ++leading;
  const double decade = std::pow(10.0, leading - (bits - 1)), fraction = (code - (1 << leading) + 1) / static_cast<double>(1 << leading);
  return leading == 0 ? decade : decade * (0.1 + 0.9 * fraction);
}

TEST(Moments8, CodesAreTheDynamicTree) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_NEAR(decode_v(static_cast<u8>(code), 1), by_words(code, 8), 1e-6 * by_words(code, 8)) << code;
    const int m = code < 128 ? code : code - 256;
    if (m == -128) continue;  // the code -128 is not used for m
    EXPECT_NEAR(decode_m(static_cast<u8>(code), 1), std::copysign(by_words(std::abs(m), 7), m), 1e-6) << m;
  }
  EXPECT_EQ(decode_v(255, 1), 1);
  EXPECT_EQ(decode_m(127, 3.7f), 3.7f);
  EXPECT_EQ(decode_m(static_cast<u8>(-127), 3.7f), -3.7f);
  EXPECT_NEAR(decode_m(1, 1), 1e-6, 1e-12);
  EXPECT_NEAR(decode_v(1, 1), 1e-7, 1e-13);
}

// Stochastic rounding to 8 bits is unbiased: the mean over all noise values is the number, and only its two neighbouring codes occur.
TEST(Moments8, RoundingIsUnbiased) {
  std::mt19937_64 random(71);
  for (int repeat = 0; repeat < 40; ++repeat) {
    const float x = std::pow(10.0f, -6.0f * std::uniform_real_distribution<float>()(random));
    double sum_m = 0, sum_v = 0;
    int low = 256, high = 0;
    for (u32 noise = 0; noise < 0x10000; ++noise) {
      const u8 code = encode_v(x, 1, static_cast<u16>(noise));
      low = std::min<int>(low, code), high = std::max<int>(high, code);
      sum_v += decode_v(code, 1);
      sum_m += decode_m(encode_m(-x, 1, static_cast<u16>(noise)), 1);
    }
    EXPECT_LE(high - low, 1);
    EXPECT_LE(decode_v(static_cast<u8>(low), 1), x * 1.000001f);
    EXPECT_GE(decode_v(static_cast<u8>(high), 1), x * 0.999999f);
    // Positions on the axis of codes are accurate to 2^-16 of a code plus a rounding error of 2^-16 over 255 codes: 4e-5 of a spacing,
    // and a spacing is at most 4.5 x.
    EXPECT_NEAR(sum_v / 0x10000, x, 2e-4 * x);
    EXPECT_NEAR(sum_m / 0x10000, -x, 2e-4 * x);
  }
}

TEST(Moments8, ToNearestWithHalfAsNoise) {
  std::mt19937_64 random(72);
  for (int repeat = 0; repeat < 20000; ++repeat) {
    const float x = std::pow(10.0f, -7.0f * std::uniform_real_distribution<float>()(random));
    const int code = encode_v(x, 1, 0x8000);
    const auto distance = [&](int c) { return c < 1 || c > 255 ? 1 : std::abs(static_cast<double>(decode_v(static_cast<u8>(c), 1)) - x); };
    ASSERT_LE(distance(code), 1.001 * std::min(distance(code - 1), distance(code + 1)) + 1e-7 * x) << x;
  }
}

TEST(Moments8, APositiveVNeverBecomesZero) {
  EXPECT_EQ(encode_v(1e-30f, 1, 0), 1);
  EXPECT_EQ(encode_v(std::numeric_limits<float>::denorm_min(), 1, 0), 1);
  EXPECT_EQ(encode_v(0, 1, 0xffff), 0);
  EXPECT_EQ(encode_m(1e-30f, 1, 0), 0);
  EXPECT_EQ(encode_m(0, 1, 0xffff), 0);
  EXPECT_EQ(encode_m(-0.0f, 1, 0xffff), 0);
}

// Decoding and encoding keeps every code at every scale that a block can have,
// if the block's largest value is among the values. Checkpoints rely on this.
TEST(Moments8, DecodedValuesHaveTheSameScaleAndCodes) {
  std::mt19937_64 random(73);
  std::vector<float> scales{0x1p-100f, std::nextafter(0x1p-100f, 1.0f), 1, std::numeric_limits<float>::max()};
  for (int i = 0; i < 3000; ++i) {
    const u32 least = std::bit_cast<u32>(0x1p-100f);
    scales.push_back(std::bit_cast<float>(static_cast<u32>(least + random() % (0x7f800000u - least))));
  }
  std::vector<float> m(255), v(256);
  for (float scale : scales) {
    for (size_t code = 0; code < v.size(); ++code) v[code] = decode_v(static_cast<u8>(code), scale);
    for (size_t k = 0; k < m.size(); ++k) m[k] = decode_m(static_cast<u8>(k + 129), scale);  // the loop decodes the codes -127 to 127
    ASSERT_EQ(block_scale(m), scale);
    ASSERT_EQ(block_scale(v), scale);
    for (size_t code = 0; code < v.size(); ++code) ASSERT_EQ(encode_v(v[code], scale, 0x8000), code) << scale;
    for (size_t k = 0; k < m.size(); ++k) ASSERT_EQ(encode_m(m[k], scale, 0x8000), static_cast<u8>(k + 129)) << scale;
  }
}

TEST(Moments8, TheLargestIsAlwaysTheLastCode) {
  std::mt19937_64 random(74);
  for (int i = 0; i < 100000; ++i) {
    const auto scale = std::bit_cast<float>(static_cast<u32>(0x20000000u + random() % 0x5f800000u));
    ASSERT_EQ(encode_v(scale, scale, static_cast<u16>(random())), 255);
    ASSERT_EQ(encode_m(-scale, scale, static_cast<u16>(random())), static_cast<u8>(-127));
  }
}

TEST(Moments8, ScalesOfOddBlocks) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto scale = [](std::vector<float> block) { return block_scale(block); };
  EXPECT_EQ(scale({1, -3, 2}), 3);
  EXPECT_EQ(scale({0, -0.0f}), 0);
  EXPECT_EQ(scale({0x1p-101f, 0}), 0);
  EXPECT_TRUE(std::isnan(scale({1, -infinity, 2})));
  EXPECT_TRUE(std::isnan(scale({1, -nan, infinity})));
  EXPECT_EQ(encode_m(1, nan, 0xffff), 0);
  EXPECT_EQ(encode_v(1, 0, 0xffff), 0);
  EXPECT_TRUE(std::isnan(decode_m(0, nan)) && std::isnan(decode_v(0, nan)));
}

}  // namespace
}  // namespace spillway::optim::moments8_test
