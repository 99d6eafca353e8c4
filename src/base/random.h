// Counter-based random numbers (Philox 4x32-10; Salmon et al., SC 2011): a value depends on (key, counter) alone, so any tile of any tensor
// can be drawn anywhere, in any order, by any number of threads. key = hash(seed, purpose, name, use).
#pragma once
#include <array>
#include <string_view>

#include "base/types.h"

namespace spillway {

struct RandomKey {
  u64 value = 0;
  /// A key for a narrower purpose: hash(this key, text, number).
  RandomKey derive(std::string_view purpose, u64 number = 0) const;
  bool operator==(const RandomKey&) const = default;
};

/// What is mixed in by each round: two words. Whoever draws much with one key keeps them.
struct PhiloxRounds {
  std::array<u32, 20> words;
  constexpr explicit PhiloxRounds(RandomKey key = {}) : words() {
    u32 k0 = static_cast<u32>(key.value), k1 = static_cast<u32>(key.value >> 32);
    for (size_t round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) words[2 * round] = k0, words[2 * round + 1] = k1;
  }
};

/// Four 32-bit words for one 128-bit counter {high, low}. Here, because GPUs draw too.
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

/// Uniform in [0, 1) with 53 bits, element `i` of stream `high`.
double uniform(RandomKey key, u64 high, u64 i);

/// Standard normal in fp64 by our own transform (no libm function whose last bit differs between systems), element `i`.
double normal(RandomKey key, u64 high, u64 i);

/// A seeded permutation of [0, n) without a table (Feistel network with cycle walking): the image of `i`.
u64 permute(RandomKey key, u64 n, u64 i);

}  // namespace spillway
