#include "trainer/events/histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace spillway::trainer {
namespace {

// A finite float is an integer below 2^24 times 2^(exponent - 150). `exponent` is the float's biased exponent, or 1 for a subnormal number.
constexpr size_t kExponents = 255;
constexpr u32 kFraction = (u32{1} << 23) - 1;
constexpr unsigned kHalf = 24;  // number of bits in the lower half of an integer's square

int power_of(size_t exponent) { return std::max(static_cast<int>(exponent), 1) - 150; }

// Place is the layout of sums_. The number of values that are not finite comes first. Next come, for
// each exponent, the sum of the values' integers (power_of() gives their scale), the sum of the lower
// halves of the integers' squares, and the sum of the upper halves. The counts of the buckets come last.
enum Place : size_t { kNotFinite, kValues, kLower = kValues + kExponents, kUpper = kLower + kExponents, kBuckets = kUpper + kExponents };
// The members of largest_ are the highest value and the negated lowest value.
enum : size_t { kHighest, kLowest };

// Maps a float to an integer such that the integers have the order of the floats. value_of() is the inverse function.
i64 order_of(float value) {
  const i64 size = std::bit_cast<u32>(value) & 0x7fffffffu;
  return std::signbit(value) ? -size : size;
}
double value_of(i64 order) {
  const float size = std::bit_cast<float>(static_cast<u32>(std::abs(order)));
  return order < 0 ? -size : size;
}

std::vector<double> make_limits() {
  std::vector<double> above;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) above.push_back(limit);
  above.push_back(std::numeric_limits<double>::max());
  std::vector<double> all;
  for (auto limit = above.rbegin(); limit != above.rend(); ++limit) all.push_back(-*limit);
  all.push_back(0);
  all.insert(all.end(), above.begin(), above.end());
  return all;
}

u16 bucket_among(const std::vector<double>& limits, float value) {
  return static_cast<u16>(std::ranges::upper_bound(limits, double{value}) - limits.begin());
}

// A lookup table speeds up counting. Floats with the same sign, exponent and upper four fraction bits form a cell of the table. Floats
// of one cell differ by at most a sixteenth and neighbouring bucket limits by a tenth, so a cell contains at most one bucket limit.
constexpr unsigned kCellShift = 19;
using FirstBuckets = std::array<u16, (1 << (32 - kCellShift))>;

// Returns for each cell the index of the bucket that contains the cell's lowest value.
FirstBuckets make_first_buckets() {
  FirstBuckets first{};
  for (u32 cell = 0; cell < first.size(); ++cell) {
    const u32 nearest_zero = cell << kCellShift, farthest = nearest_zero | ((u32{1} << kCellShift) - 1);
    const float lowest = std::bit_cast<float>(nearest_zero >> 31 ? farthest : nearest_zero);
    if (std::isfinite(lowest)) first[cell] = bucket_among(bucket_limits(), lowest);
  }
  return first;
}

}  // namespace

const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = make_limits();
  return limits;
}

Histogram::Histogram() : sums_(kBuckets + bucket_limits().size()), largest_(2, std::numeric_limits<i64>::lowest()) {}

void Histogram::add(std::span<const float> values) {
  static const FirstBuckets first = make_first_buckets();
  const double* const limits = bucket_limits().data();
  i64* const sums = sums_.data();
  float lowest = std::numeric_limits<float>::infinity(), highest = -lowest;
  for (const float value : values) {
    const u32 bits = std::bit_cast<u32>(value), exponent = bits >> 23 & 0xff;
    if (exponent == kExponents) {
      ++sums[kNotFinite];
      continue;
    }
    const i64 whole = (bits & kFraction) | (exponent > 0 ? kFraction + 1 : 0), square = whole * whole;
    sums[kValues + exponent] += bits >> 31 ? -whole : whole;
    sums[kLower + exponent] += square & ((i64{1} << kHalf) - 1);
    sums[kUpper + exponent] += square >> kHalf;
    const size_t bucket = first[bits >> kCellShift];
    ++sums[kBuckets + bucket + (value >= limits[bucket])];
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  if (lowest > highest) return;
  largest_[kHighest] = std::max(largest_[kHighest], order_of(highest));
  largest_[kLowest] = std::max(largest_[kLowest], -order_of(lowest));
}

void Histogram::add(const Histogram& other) {
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
  for (size_t i = 0; i < largest_.size(); ++i) largest_[i] = std::max(largest_[i], other.largest_[i]);
}

i64 Histogram::not_finite() const { return sums_[kNotFinite]; }

i64 Histogram::count() const {
  i64 count = 0;
  for (size_t i = kBuckets; i < sums_.size(); ++i) count += sums_[i];
  return count;
}

double Histogram::min() const { return count() == 0 ? 0 : value_of(-largest_[kLowest]); }
double Histogram::max() const { return count() == 0 ? 0 : value_of(largest_[kHighest]); }

double Histogram::sum() const {
  double sum = 0;
  for (size_t e = 0; e < kExponents; ++e) sum += std::ldexp(static_cast<double>(sums_[kValues + e]), power_of(e));
  return sum;
}

double Histogram::sum_of_squares() const {
  double sum = 0;
  for (size_t e = 0; e < kExponents; ++e) {
    sum += std::ldexp(static_cast<double>(sums_[kLower + e]), 2 * power_of(e));
    sum += std::ldexp(static_cast<double>(sums_[kUpper + e]), 2 * power_of(e) + static_cast<int>(kHalf));
  }
  return sum;
}

Histogram::Buckets Histogram::buckets() const {
  const std::vector<double>& limits = bucket_limits();
  const std::span counts = std::span(sums_).subspan(kBuckets);
  const size_t begin = static_cast<size_t>(std::ranges::find_if(counts, [](i64 c) { return c > 0; }) - counts.begin());
  if (begin == counts.size()) return {{limits.back()}, {0}};
  size_t end = counts.size();
  while (counts[end - 1] == 0) --end;
  Buckets shown;
  for (size_t b = begin; b < end; ++b) {
    if (counts[b] == 0 && counts[b - 1] == 0) {
      shown.limits.back() = limits[b];
      continue;
    }
    shown.limits.push_back(limits[b]);
    shown.counts.push_back(static_cast<double>(counts[b]));
  }
  return shown;
}

}  // namespace spillway::trainer
