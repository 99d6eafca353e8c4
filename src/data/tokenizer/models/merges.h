// Stores the merges of a byte pair encoding in one flat hash table, which maps (left
// id, right id) to (rank, id of the merged token). Immutable after the last put().
#pragma once
#include <vector>

#include "data/tokenizer/vocabulary.h"

namespace spillway::data {

class Merges {
 public:
  struct Merge {
    u32 rank;
    i32 id;
  };
  explicit Merges(size_t count = 0) {
    size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    slots_.resize(slots);
  }
  /// Adds a pair, or replaces its merge if the pair is in the table already. At most `count` pairs (the
  /// constructor's argument) may be added. Returns false if hundreds of other pairs have the pair's hash,
  /// which happens only if the pairs were chosen to cause it. After false the table must not be used.
  [[nodiscard]] bool put(i32 left, i32 right, Merge merge) {
    const u64 key = key_of(left, right);
    const size_t slot = slot_of(key);
    slots_[slot] = {key, merge};
    return ((slot - hash_of_key(key)) & (slots_.size() - 1)) <= kMostTries;
  }
  /// Returns the merge of a pair, or null if the pair is never merged.
  const Merge* find(i32 left, i32 right) const {
    const u64 key = key_of(left, right);
    const Slot& slot = slots_[slot_of(key)];
    return slot.key == key ? &slot.merge : nullptr;
  }

 private:
  static constexpr u64 kFree = ~u64{0};
  struct Slot {
    u64 key = kFree;
    Merge merge{0, 0};
  };
  static u64 key_of(i32 left, i32 right) { return static_cast<u64>(static_cast<u32>(left)) << 32 | static_cast<u32>(right); }
  static size_t hash_of_key(u64 key) {
    const u64 hash = key * 0x9E3779B97F4A7C15u;
    return static_cast<size_t>(hash ^ hash >> 32);
  }
  size_t slot_of(u64 key) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = hash_of_key(key) & mask;
    while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & mask;
    return slot;
  }
  std::vector<Slot> slots_;
};

}  // namespace spillway::data
