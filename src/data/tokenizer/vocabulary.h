// Token texts and their ids, for look-up both ways: one arena and one flat hash table, no allocation per look-up. Immutable after the last
// add(); then thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_fields.h"

namespace spillway::data {

inline constexpr i32 kNoToken = -1;

/// How many slots of a hash table may be tried before one is found: chance alone would need some dozens for millions of entries.
inline constexpr size_t kMostTries = 512;

/// A hash of bytes that is good in all its bits.
u64 hash_of(std::string_view bytes);

class Vocabulary {
 public:
  /// The JSON object {"token": id, …}. Errors: Error(data) for an id that is no whole number, is used twice, or lies far above the number
  /// of tokens.
  static Vocabulary read(const nlohmann::json& value, const JsonPlace& place);

  /// Adds a token whose id no token has; a text that is already there now has this id. False, and the vocabulary is of no use, if its
  /// hash is that of hundreds of others, as only texts made for it have.
  [[nodiscard]] bool add(std::string_view text, i32 id);
  i32 find(std::string_view text) const;
  bool has(i32 id) const { return id >= 0 && static_cast<size_t>(id) < places_.size() && places_[static_cast<size_t>(id)].length >= 0; }
  /// Empty if there is no such token.
  std::string_view text(i32 id) const;
  /// Texts that find() knows.
  i64 size() const { return size_; }
  /// All ids are below it.
  i64 bound() const { return static_cast<i64>(places_.size()); }
  i64 longest_bytes() const { return longest_; }

 private:
  struct Place {
    size_t offset = 0;
    i64 length = -1;
  };
  void grow();
  size_t slot_of(std::string_view text) const;
  std::string arena_;
  std::vector<Place> places_;  // by id
  std::vector<i32> slots_ = std::vector<i32>(16, kNoToken);
  i64 size_ = 0, longest_ = 0;
};

/// "<0x0A>" and the like.
std::string byte_token(unsigned char byte);

}  // namespace spillway::data
