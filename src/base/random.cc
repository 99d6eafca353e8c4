#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace spillway {
namespace {

// David Stafford's mix 13, the finalizer of splitmix64: a bijection of 64 bits in which every input bit reaches every output bit.
constexpr u64 mix(u64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr u64 kGolden = 0x9e3779b97f4a7c15u;  // the constant is 2^64 / golden ratio, rounded

// Reads up to eight bytes as a little-endian word on any machine. Missing bytes are zero.
u64 word_of(std::string_view bytes) {
  u64 word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) word |= static_cast<u64>(static_cast<u8>(bytes[i])) << (8 * i);
  return word;
}

u64 bits_of(RandomKey key, u64 high, u64 i) {
  const auto words = philox(key, high, i);
  return words[0] | static_cast<u64>(words[1]) << 32;
}

// Returns the natural logarithm of a normal x > 0 to within 2 ulp. It uses x = m 2^e with m in [sqrt 1/2, sqrt 2) and ln m = 2 atanh((m -
// 1) / (m + 1)).
double own_log(double x) {
  const u64 bits = std::bit_cast<u64>(x);
  i64 e = static_cast<i64>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m >= 1.4142135623730951) {
    m *= 0.5;
    ++e;
  }
  const double s = (m - 1) / (m + 1), z = s * s;  // z <= 0.0295, so the twelfth term of the series is below 2^-60
  double sum = 1.0 / 25;
  for (int k = 23; k >= 1; k -= 2) sum = sum * z + 1.0 / k;
  // kLn2High * e is computed without rounding error
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  const auto n = static_cast<double>(e);
  return n * kLn2High + (2 * s * sum + n * kLn2Low);
}

template <size_t N>
double horner(const double (&c)[N], double x) {
  double y = c[N - 1];
  for (size_t i = N - 1; i-- > 0;) y = y * x + c[i];
  return y;
}

// Coefficients of the inverse normal distribution from Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution",
// Applied Statistics 37 (1988), routine PPND16 (about 16 digits). Three pairs of polynomials serve the middle, the near tail and the far
// tail.
constexpr double kA[] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
                         4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3};
constexpr double kB[] = {1.0,
                         4.2313330701600911252e1,
                         6.8718700749205790830e2,
                         5.3941960214247511077e3,
                         2.1213794301586595867e4,
                         3.9307895800092710610e4,
                         2.8729085735721942674e4,
                         5.2264952788528545610e3};
constexpr double kC[] = {1.42343711074968357734e0, 4.63033784615654529590e0,  5.76949722146069140550e0,  3.64784832476320460504e0,
                         1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kD[] = {1.0,
                         2.05319162663775882187e0,
                         1.67638483018380384940e0,
                         6.89767334985100004550e-1,
                         1.48103976427480074590e-1,
                         1.51986665636164571966e-2,
                         5.47593808499534494600e-4,
                         1.05075007164441684324e-9};
constexpr double kE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,  2.96560571828504891230e-1,
                         2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kF[] = {1.0,
                         5.99832206555887937690e-1,
                         1.36929880922735805310e-1,
                         1.48753612908506148525e-2,
                         7.86869131145613259100e-4,
                         1.84631831751005468180e-5,
                         1.42151175831644588870e-7,
                         2.04426310338993978564e-15};

// Returns the point that a standard normal variable exceeds with probability `tail`, 0 < tail <= 0.5.
double upper_point(double tail) {
  const double q = 0.5 - tail;
  if (q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * horner(kA, r) / horner(kB, r);
  }
  const double r = std::sqrt(-own_log(tail));  // sqrt is correctly rounded on every system, so r is bitwise the same everywhere
  if (r <= 5) return horner(kC, r - 1.6) / horner(kD, r - 1.6);
  return horner(kE, r - 5) / horner(kF, r - 5);
}

// Applies a balanced Feistel network, which permutes the numbers of 2 * half_bits bits, to x.
u64 feistel(RandomKey key, int half_bits, u64 x) {
  const u64 mask = (u64{1} << half_bits) - 1;
  u64 left = x >> half_bits, right = x & mask;
  for (u64 round = 0; round < 8; ++round) {
    const u64 next = left ^ (mix(mix(key.value + (round + 1) * kGolden) ^ right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

RandomKey RandomKey::derive(std::string_view purpose, u64 number) const {
  u64 h = mix(value + kGolden);
  const u64 length = purpose.size();
  while (!purpose.empty()) {
    const size_t n = std::min<size_t>(8, purpose.size());
    h = mix((h ^ word_of(purpose.substr(0, n))) + kGolden);
    purpose.remove_prefix(n);
  }
  h = mix((h ^ length) + 2 * kGolden);  // the hash includes the length, so that "a" and "a\0" give different keys
  return {mix((h ^ mix(number + kGolden)) + 3 * kGolden)};
}

double uniform(RandomKey key, u64 high, u64 i) { return static_cast<double>(bits_of(key, high, i) >> 11) * 0x1p-53; }

double normal(RandomKey key, u64 high, u64 i) {
  const u64 bits = bits_of(key, high, i);
  // The top bit of the random word is the sign. The other 63 bits cut (0, 1/2] evenly, so that the tails reach 9.1 standard deviations.
  const double tail = (static_cast<double>(bits & ~(u64{1} << 63)) + 0.5) * 0x1p-64;
  const double x = upper_point(tail);
  return bits >> 63 ? -x : x;
}

u64 permute(RandomKey key, u64 n, u64 i) {
  require(i < n, "[permute] expected an index below the size of the set");
  const int bits = std::bit_width(n - 1);
  const int half_bits = bits < 2 ? 1 : (bits + 1) / 2;
  // The Feistel network is applied until the result is below n, which keeps the mapping
  // a bijection. The network's domain has at most 4n elements, so few steps are needed.
  u64 x = i;
  do x = feistel(key, half_bits, x);
  while (x >= n);
  return x;
}

}  // namespace spillway
