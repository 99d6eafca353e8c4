// A cache of the ids of words that were encoded recently: a hash table of fixed size in which a new word replaces the word with the same
// table index. Not thread-safe: each encoding call has a separate cache.
#pragma once
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizer/vocabulary.h"

namespace spillway::data {

class WordCache {
 public:
  static constexpr size_t kLongestWord = 34, kMostIds = 7;

  /// Returns the ids of a word, or an empty span if the word is not cached.
  std::span<const i32> find(std::string_view word) {
    if (word.size() > kLongestWord) return {};
    if (entries_.empty()) entries_.resize(kEntries);
    slot_ = static_cast<size_t>(hash_of(word)) & (kEntries - 1);
    const Entry& entry = entries_[slot_];
    if (entry.length != word.size() || std::memcmp(entry.word.data(), word.data(), word.size()) != 0) return {};
    return {entry.ids.data(), entry.count};
  }
  /// Stores the ids of a word, if the word and the list of its ids are short enough.
  /// The last find() must have been for this word and must have found nothing.
  void put(std::string_view word, std::span<const i32> ids) {
    if (word.size() > kLongestWord || word.empty() || ids.empty() || ids.size() > kMostIds) return;
    Entry& entry = entries_[slot_];
    entry.length = static_cast<u8>(word.size());
    entry.count = static_cast<u8>(ids.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr size_t kEntries = 1 << 15;  // the number of words in the table, which then takes 2 MiB
  struct Entry {
    u8 length = 0, count = 0;
    std::array<char, kLongestWord> word{};
    std::array<i32, kMostIds> ids{};
  };
  static_assert(sizeof(Entry) == 64);
  std::vector<Entry> entries_;
  size_t slot_ = 0;
};

}  // namespace spillway::data
