// Compares histograms over TensorFlow's buckets with a count over limits that the test computes, and their sums with exact sums.
#include "trainer/events/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

namespace spillway::trainer::histogram_test {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max(), kSmallest = std::numeric_limits<float>::denorm_min();

Histogram of(const std::vector<float>& values) {
  Histogram histogram;
  histogram.add(values);
  return histogram;
}

// Returns finite floats of all magnitudes and both signs.
std::vector<float> all_sizes(size_t count, u64 seed) {
  std::vector<float> values;
  for (u32 state = static_cast<u32>(seed); values.size() < count;) {
    state = state * 1664525u + 1013904223u;
    const float value = std::bit_cast<float>(state ^ state >> 15);
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

// Returns values of few magnitudes, as weights are, so that many terms of a sum have the same exponent.
std::vector<float> weights(size_t count) {
  std::vector<float> values;
  u32 state = 7;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(static_cast<i32>(state)) / 4e10f + 0.01f);
  }
  return values;
}

// The expected limits were computed in Python by the loop of torch.utils.tensorboard
// (SummaryWriter.default_bins), and equal PyTorch's bit for bit.
TEST(Histogram, LimitsAreTensorFlows) {
  const std::vector<double>& limits = bucket_limits();
  ASSERT_EQ(limits.size(), 1551u);
  const size_t zero = 775;
  EXPECT_EQ(limits[zero], 0);
  EXPECT_EQ(limits.back(), std::numeric_limits<double>::max());
  for (size_t i = 0; i <= zero; ++i) EXPECT_EQ(limits[i], -limits[limits.size() - 1 - i]);
  for (const auto& [k, limit] : std::map<size_t, double>{{0, 1e-12},
                                                         {1, 0x1.359f5a7b2817ap-40},
                                                         {10, 0x1.6d096bad62d47p-39},
                                                         {100, 0x1.d97f8c4c9da89p-27},
                                                         {500, 0x1.d9f6084bb32e9p+28},
                                                         {773, 0x1.58323029f544cp+66}})
    EXPECT_EQ(limits[zero + 1 + k], limit) << k;
}

void expect_in_its_bucket(float value) {
  const Histogram::Buckets buckets = of({value}).buckets();
  const auto above = std::ranges::find_if(bucket_limits(), [&](double limit) { return double{value} < limit; });
  ASSERT_EQ(buckets.limits, std::vector<double>{*above}) << value;
  ASSERT_EQ(buckets.counts, std::vector<double>{1}) << value;
}

TEST(Histogram, AValueLiesBelowItsLimitAndNotBelowTheOneBefore) {
  for (const double limit : bucket_limits()) {
    if (std::abs(limit) > kLargest) continue;
    float value = static_cast<float>(limit);
    for (int i = 0; i < 2; ++i) value = std::nextafter(value, -kLargest);
    for (int i = 0; i < 5; ++i, value = std::nextafter(value, kLargest)) expect_in_its_bucket(value);
  }
  for (const float value : {0.0f, -0.0f, kSmallest, -kSmallest, kLargest, -kLargest, 1.0f, -1.0f}) expect_in_its_bucket(value);
  for (const float value : all_sizes(20000, 1)) expect_in_its_bucket(value);
}

TEST(Histogram, BucketsHaveWhatAPlainCountHas) {
  for (const std::vector<float>& values : {weights(100000), all_sizes(100000, 2), std::vector<float>{-3, 5}, std::vector<float>{0, 0, 1}}) {
    std::map<double, double> plain;
    for (const float value : values) ++plain[*std::ranges::upper_bound(bucket_limits(), double{value})];
    const Histogram::Buckets buckets = of(values).buckets();
    ASSERT_EQ(buckets.limits.size(), buckets.counts.size());
    EXPECT_TRUE(std::ranges::is_sorted(buckets.limits, std::less_equal()));
    EXPECT_GT(buckets.counts.front(), 0);
    EXPECT_GT(buckets.counts.back(), 0);
    for (size_t b = 0; b < buckets.limits.size(); ++b) {
      const auto found = plain.find(buckets.limits[b]);
      EXPECT_EQ(buckets.counts[b], found == plain.end() ? 0 : found->second) << buckets.limits[b];
      EXPECT_NE(std::ranges::find(bucket_limits(), buckets.limits[b]), bucket_limits().end());
      EXPECT_TRUE(b == 0 || buckets.counts[b] + buckets.counts[b - 1] > 0) << "two neighbours are empty";
      plain.erase(buckets.limits[b]);
    }
    EXPECT_TRUE(plain.empty()) << "a bucket is missing, of " << plain.begin()->first;
    const auto [min, max] = std::ranges::minmax(values);
    EXPECT_EQ(of(values).min(), min);
    EXPECT_EQ(of(values).max(), max);
    EXPECT_EQ(of(values).count(), std::ssize(values));
  }
}

// Sums of whole numbers up to 2^16 are compared exactly with integer sums. Other sums are compared with a sum in long double. The
// tolerance allows 255 additions in fp64, each rounded by at most 2^-53 of the sum of magnitudes. The error of the sum in long double
// (2^-64 per term, relative to the partial sum) is a thousandth of the tolerance.
TEST(Histogram, SumsAreThoseOfTheValues) {
  std::vector<float> whole;
  i64 sum = 0, squares = 0;
  for (i64 i = -65536; i <= 65536; i += 7) whole.push_back(static_cast<float>(i)), sum += i, squares += i * i;
  EXPECT_EQ(of(whole).sum(), static_cast<double>(sum));
  EXPECT_EQ(of(whole).sum_of_squares(), static_cast<double>(squares));
  for (const std::vector<float>& values : {weights(100000), all_sizes(1000, 3), std::vector<float>{kSmallest, kSmallest, -kLargest}}) {
    long double plain = 0, sizes = 0, square = 0;
    for (const float value : values) plain += value, sizes += std::abs(value), square += static_cast<long double>(value) * value;
    EXPECT_NEAR(of(values).sum(), static_cast<double>(plain), 255 * 0x1p-52 * static_cast<double>(sizes));
    EXPECT_NEAR(of(values).sum_of_squares(), static_cast<double>(square), 510 * 0x1p-52 * static_cast<double>(square));
  }
  EXPECT_EQ(of({kSmallest}).sum(), double{kSmallest});
  EXPECT_EQ(of({kSmallest, kSmallest}).sum_of_squares(), 2.0 * kSmallest * kSmallest);
}

// Histograms of parts of the values, counted in another order, add up to the histogram of all values, with the same sums to the bit.
TEST(Histogram, PartsAddUpToTheWhole) {
  std::vector<float> values = all_sizes(30001, 4);
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  Histogram whole = of(values);
  std::ranges::reverse(values);
  Histogram parts;
  for (size_t begin = 0; begin < values.size(); begin += 997) {
    Histogram part;
    part.add(std::span(values).subspan(begin, std::min<size_t>(997, values.size() - begin)));
    parts.add(part);
  }
  parts.add(Histogram());
  EXPECT_EQ(parts.sums(), whole.sums());
  EXPECT_EQ(parts.largest(), whole.largest());
  EXPECT_EQ(parts.sum(), whole.sum());
  EXPECT_EQ(parts.min(), whole.min());
}

TEST(Histogram, WhatIsNotFiniteIsCountedApart) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Histogram some = of({inf, 2, -inf, nan, -nan, 3});
  EXPECT_EQ(some.not_finite(), 4);
  EXPECT_EQ(some.count(), 2);
  EXPECT_EQ(some.min(), 2);
  EXPECT_EQ(some.max(), 3);
  EXPECT_EQ(some.sum(), 5);
  EXPECT_EQ(some.sum_of_squares(), 13);
  for (const Histogram& none : {of({nan}), of({})}) {
    EXPECT_EQ(none.count(), 0);
    for (const double number : {none.min(), none.max(), none.sum(), none.sum_of_squares()}) EXPECT_EQ(number, 0);
    EXPECT_EQ(none.buckets().limits, std::vector<double>{std::numeric_limits<double>::max()});
    EXPECT_EQ(none.buckets().counts, std::vector<double>{0});
  }
}

}  // namespace
}  // namespace spillway::trainer::histogram_test
