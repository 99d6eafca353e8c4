// Counter-based random numbers (Philox 4x32-10; Salmon et al., SC 2011). A value depends on (key, counter) alone, so any tile of any tensor
// can be generated anywhere, in any order, by any number of threads. Keys are derived as hash(seed, purpose, name, use).
#pragma once
#include <array>
#include <string_view>

#include "base/types.h"

namespace spillway {

struct RandomKey {
  u64 value = 0;
  /// Returns a key for a narrower purpose: hash(this key, purpose, number).
  RandomKey derive(std::string_view purpose, u64 number = 0) const;
  bool operator==(const RandomKey&) const = default;
};

/// The round keys of Philox, two words for each of its ten rounds. Callers that draw many values with one key compute them once.
struct PhiloxRounds {
  std::array<u32, 20> words;
  constexpr explicit PhiloxRounds(RandomKey key = {}) : words() {
    u32 k0 = static_cast<u32>(key.value), k1 = static_cast<u32>(key.value >> 32);
    for (size_t round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) words[2 * round] = k0, words[2 * round + 1] = k1;
  }
};

/// Returns the four 32-bit random words for the 128-bit counter {high,
/// low}. philox() is defined in the header because CUDA kernels use it too.
constexpr std::array<u32, 4> philox(const PhiloxRounds& rounds, u64 counter_high, u64 counter_low) {
  auto low = [](u64 x) { return static_cast<u32>(x); };
  auto high = [](u64 x) { return static_cast<u32>(x >> 32); };
  std::array<u32, 4> x{low(counter_low), high(counter_low), low(counter_high), high(counter_high)};
  for (size_t round = 0; round < 10; ++round) {
    const u64 p0 = u64{0xD2511F53u} * x[0], p1 = u64{0xCD9E8D57u} * x[2];
    x = {high(p1) ^ x[1] ^ rounds.words[2 * round], low(p1), high(p0) ^ x[3] ^ rounds.words[2 * round + 1], low(p0)};
  }
  return x;
}
constexpr std::array<u32, 4> philox(RandomKey key, u64 counter_high, u64 counter_low) {
  return philox(PhiloxRounds(key), counter_high, counter_low);
}

/// Returns element `i` of the random stream with number `high`: uniform in [0, 1), with 53 random bits.
double uniform(RandomKey key, u64 high, u64 i);

/// Returns element `i` of the random stream with number `high`: standard normal, in fp64. The transform uses no libm function whose last
/// bit differs between systems.
double normal(RandomKey key, u64 high, u64 i);

/// Returns the image of `i` under a pseudo-random permutation of [0, n) that needs no table (a Feistel network with cycle walking).
u64 permute(RandomKey key, u64 n, u64 i);

}  // namespace spillway
