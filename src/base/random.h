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

/// Four 32-bit words for one 128-bit counter {high, low}.
std::array<u32, 4> philox(RandomKey key, u64 counter_high, u64 counter_low);

/// Uniform in [0, 1) with 53 bits, element `i` of stream `high`.
double uniform(RandomKey key, u64 high, u64 i);

/// Standard normal in fp64 by our own transform (no libm function whose last bit differs between systems), element `i`.
double normal(RandomKey key, u64 high, u64 i);

/// A seeded permutation of [0, n) without a table (Feistel network with cycle walking): the image of `i`.
u64 permute(RandomKey key, u64 n, u64 i);

}  // namespace spillway
