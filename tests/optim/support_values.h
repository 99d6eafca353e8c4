// Draws input values that reveal differences between instruction sets, and compares values bit by bit.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "base/types.h"
#include "optim/isa.h"

namespace spillway::test {

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, u32, u64>;

/// Returns whether two numbers are equal to the bit, including signed zeros. Any NaN equals any NaN.
template <class T>
bool same(T a, T b) {
  return std::bit_cast<Bits<T>>(a) == std::bit_cast<Bits<T>>(b) || (std::isnan(a) && std::isnan(b));
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) return false;
  }
  return true;
}

// tiny: denormals and numbers near them; any: all bit patterns, including NaN and infinity
enum class Values { ordinary, tiny, huge, any };

/// Returns a random number of mean 0 and standard deviation 1, with random bits in the whole mantissa: a scaled sum of two
/// uniform numbers. A normal distribution needs logarithms, which would take most of the time of sanitized optimizer tests.
template <class T>
T near_zero(std::mt19937_64& random) {
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  const double first = uniform();
  return static_cast<T>((first + uniform() - 1) * 2.449489742783178);  // the factor sqrt(6) makes the variance 1
}

template <class T>
T draw(Values kind, std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  const T x = near_zero<T>(random);
  switch (kind) {
    case Values::ordinary:
      return x;
    case Values::tiny:
      return random() % 8 == 0 ? std::copysign(T(0), x) : x * Limits::min() * (random() % 2 ? T(1) / 1024 : T(4));
    case Values::huge:
      return x * std::sqrt(Limits::max()) * (random() % 2 ? std::sqrt(Limits::max()) / 8 : T(1));
    case Values::any:
      break;
  }
  return std::bit_cast<T>(static_cast<Bits<T>>(random()));
}

template <class T>
std::vector<T> draw(size_t n, Values kind, std::mt19937_64& random) {
  std::vector<T> values(n);
  for (T& value : values) value = draw<T>(kind, random);
  return values;
}

constexpr Values kAllValues[] = {Values::ordinary, Values::tiny, Values::huge, Values::any};

/// Runs tests that compare each instruction set of the current CPU with the scalar path.
class FastPath : public testing::TestWithParam<optim::Isa> {};

inline std::string isa_name(const testing::TestParamInfo<optim::Isa>& info) { return optim::to_string(info.param); }

}  // namespace spillway::test
