#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace spillway::random_test {
namespace {

using Words = std::array<u32, 4>;

// The expected words are the known-answer vectors of Random123's kat_vectors file for philox4x32-10.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~u64{0}}, ~u64{0}, ~u64{0}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x299f31d0a4093822}, 0x0370734413198a2e, 0x85a308d3243f6a88), (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

u32 inverse_of(u32 odd) {
  u32 x = odd;
  for (int i = 0; i < 5; ++i) x *= 2 - odd * x;  // a step of Newton's iteration for the inverse modulo 2^32
  return x;
}

struct Counter {
  u64 high, low;
};

// Runs Philox backwards and returns the counter whose output is `x`. With it a test can ask for any output, however rare.
Counter counter_of(RandomKey key, Words x) {
  const u32 m0 = 0xD2511F53, m1 = 0xCD9E8D57;
  for (u32 round = 10; round-- > 0;) {
    const u32 k0 = static_cast<u32>(key.value) + round * 0x9E3779B9, k1 = static_cast<u32>(key.value >> 32) + round * 0xBB67AE85;
    const u32 a = x[3] * inverse_of(m0), c = x[1] * inverse_of(m1);
    x = {a, x[0] ^ static_cast<u32>(u64{m1} * c >> 32) ^ k0, c, x[2] ^ static_cast<u32>(u64{m0} * a >> 32) ^ k1};
  }
  return {x[2] | u64{x[3]} << 32, x[0] | u64{x[1]} << 32};
}

double normal_from_bits(u64 bits) {
  const RandomKey key{42};
  const Words words{static_cast<u32>(bits), static_cast<u32>(bits >> 32), 0, 0};
  const Counter at = counter_of(key, words);
  EXPECT_EQ(philox(key, at.high, at.low), words);
  return normal(key, at.high, at.low);
}

TEST(Normal, InvertsTheDistributionFunctionOverTheWholeRange) {
  // Wichura's approximation promises a relative error of about 1e-16 in x. The tail probability multiplies
  // a relative error in x by about x^2 <= 84, and erfc itself adds an error of about 1 ulp times that.
  for (int shift = 0; shift <= 63; ++shift) {
    for (const u64 mantissa : {u64{0x7fffffffffffffff}, u64{0x6123456789abcdef}, u64{0x4000000000000000}}) {
      const u64 bits = mantissa >> shift;
      const double tail = (static_cast<double>(bits) + 0.5) * 0x1p-64, x = normal_from_bits(bits);
      EXPECT_NEAR(0.5 * std::erfc(x / std::sqrt(2.0)) / tail, 1, 5e-14) << "tail " << tail;
      EXPECT_EQ(normal_from_bits(bits | u64{1} << 63), -x);
    }
  }
}

TEST(Normal, FarthestTailIsNineStandardDeviations) { EXPECT_NEAR(normal_from_bits(0), 9.16, 0.01); }

TEST(Normal, MomentsTailsAndKolmogorovSmirnov) {
  constexpr int n = 200000;
  std::vector<double> x(n);
  for (int i = 0; i < n; ++i) x[static_cast<size_t>(i)] = normal(RandomKey{7}.derive("moments"), 3, static_cast<u64>(i));
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    m1 += x[i], m2 += x[i] * x[i], m3 += x[i] * x[i] * x[i], m4 += x[i] * x[i] * x[i] * x[i];
    if (i) lag += x[i] * x[i - 1];
  }
  // The tolerances are four standard errors of a mean. For normal x and y, the variances of x, x^2, x^3, x^4 and x y are 1, 2, 15, 96, 1.
  const double error = 4 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(m1 / n, 0, error);
  EXPECT_NEAR(m2 / n, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(m3 / n, 0, error * std::sqrt(15.0));
  EXPECT_NEAR(m4 / n, 3, error * std::sqrt(96.0));
  EXPECT_NEAR(lag / n, 0, error);
  const auto beyond3 = static_cast<double>(std::ranges::count_if(x, [](double v) { return std::abs(v) > 3; }));
  EXPECT_NEAR(beyond3, n * 0.0026998, 4 * std::sqrt(n * 0.0027));

  std::ranges::sort(x);
  double distance = 0;
  for (int i = 0; i < n; ++i) {
    const double f = 0.5 * std::erfc(-x[static_cast<size_t>(i)] / std::sqrt(2.0));
    distance = std::max({distance, std::abs(f - static_cast<double>(i) / n), std::abs(f - static_cast<double>(i + 1) / n)});
  }
  EXPECT_LT(distance * std::sqrt(static_cast<double>(n)), 1.95);  // a correct generator exceeds this bound for one seed in a thousand
}

// Random numbers must stay the same to the bit for ever, since every run that resumes from a checkpoint relies on them.
TEST(Random, ValuesAreFixedForEver) {
  const RandomKey key = RandomKey{1337}.derive("weights", 2);
  EXPECT_EQ(key.value, 0x451142103889fa47u);
  EXPECT_EQ(RandomKey{1337}.derive("").value, 0x879c0ea3ec906f5cu);
  EXPECT_EQ(std::bit_cast<u64>(normal(key, 0, 0)), 0xbffb486240e31a50u);
  EXPECT_EQ(std::bit_cast<u64>(normal(key, 1, 5)), 0x3fde1c73d4c75700u);
  EXPECT_EQ(std::bit_cast<u64>(uniform(key, 0, 0)), 0x3fe1691cf56bb783u);
  std::vector<u64> order;
  for (u64 i = 0; i < 10; ++i) order.push_back(permute(key, 10, i));
  EXPECT_EQ(order, (std::vector<u64>{7, 6, 3, 8, 2, 9, 1, 5, 0, 4}));
}

TEST(Uniform, LiesInTheUnitIntervalEvenly) {
  std::array<int, 16> counts{};
  for (u64 i = 0; i < 160000; ++i) {
    const double u = uniform({11}, 0, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++counts[static_cast<size_t>(u * 16)];
  }
  double chi2 = 0;
  for (const int c : counts) chi2 += (c - 10000.0) * (c - 10000.0) / 10000;
  EXPECT_LT(chi2, 37.7);  // with 15 degrees of freedom, a correct generator exceeds this for one seed in a thousand
  const Counter top = counter_of({11}, {0xffffffff, 0xffffffff, 1, 2});
  EXPECT_EQ(uniform({11}, top.high, top.low), 1 - 0x1p-53);
}

TEST(RandomKey, DeriveTellsAllItsPartsApart) {
  std::set<u64> keys;
  size_t made = 0;
  const std::vector<std::string> names = {"", "a", std::string("a\0", 2), "b", "ab", "ba", "abcdefgh", "abcdefgh ", "abcdefghi", "weight"};
  for (u64 seed = 0; seed < 50; ++seed) {
    for (const std::string& name : names) {
      for (u64 number = 0; number < 50; ++number, ++made) keys.insert(RandomKey{seed}.derive(name, number).value);
    }
  }
  EXPECT_EQ(keys.size(), made);
}

TEST(RandomKey, EveryInputBitReachesHalfOfTheOutputBits) {
  // Flipping one input bit changes 32 of the 64 key bits on average, with a standard
  // deviation of 4. The mean over 200 keys must lie within 6 standard errors (1.7).
  for (int bit = 0; bit < 64; ++bit) {
    int by_number = 0, by_seed = 0;
    for (u64 i = 0; i < 200; ++i) {
      const u64 base = RandomKey{i}.derive("x", i * 977).value;
      by_number += std::popcount(base ^ RandomKey{i}.derive("x", i * 977 ^ u64{1} << bit).value);
      by_seed += std::popcount(base ^ RandomKey{i ^ u64{1} << bit}.derive("x", i * 977).value);
    }
    EXPECT_NEAR(by_number / 200.0, 32, 1.7) << bit;
    EXPECT_NEAR(by_seed / 200.0, 32, 1.7) << bit;
  }
}

TEST(Permute, IsABijectionForManySizes) {
  std::vector<u64> sizes = {1000, 4095, 4096, 4097, 65537};
  for (u64 n = 1; n <= 300; ++n) sizes.push_back(n);
  for (const u64 n : sizes) {
    std::vector<bool> hit(n, false);
    for (u64 i = 0; i < n; ++i) {
      const u64 image = permute({n * 31}, n, i);
      ASSERT_LT(image, n);
      ASSERT_FALSE(hit[image]) << n;
      hit[image] = true;
    }
  }
}

TEST(Permute, EveryPlaceIsEquallyLikelyAndKeysDiffer) {
  for (const u64 n : {2u, 3u, 5u, 16u}) {
    const int keys = 4000;
    std::vector<double> counts(n * n, 0);
    for (u64 key = 0; key < static_cast<u64>(keys); ++key) {
      for (u64 i = 0; i < n; ++i) ++counts[i * n + permute(RandomKey{5}.derive("epoch", key), n, i)];
    }
    const double expected = keys / static_cast<double>(n);
    for (const double c : counts) EXPECT_NEAR(c, expected, 5 * std::sqrt(expected)) << n;
  }
}

TEST(Permute, WorksBeyond32BitsAndRefusesWhatIsOutside) {
  const u64 n = (u64{1} << 40) + 12345;
  std::set<u64> images;
  for (u64 i = 0; i < 1000; ++i) {
    const u64 image = permute({9}, n, n - 1 - i);
    EXPECT_LT(image, n);
    images.insert(image);
  }
  EXPECT_EQ(images.size(), 1000u);
  EXPECT_THROW(permute({9}, 5, 5), Error);
  EXPECT_THROW(permute({9}, 0, 0), Error);
}

}  // namespace
}  // namespace spillway::random_test
