// Maps token texts to ids and back. All texts are in one block of memory, with one flat hash table, so a look-up allocates nothing. After
// the last add() the map is immutable and thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_fields.h"

namespace spillway::data {

inline constexpr i32 kNoToken = -1;

/// The limit on the slots of a hash table that one look-up tries. With ordinary input a few dozen are enough
/// even for millions of entries. If more are needed, somebody has chosen the input to make look-ups slow.
inline constexpr size_t kMostTries = 512;

/// Returns a hash of the bytes. All bits of the result are well mixed.
u64 hash_of(std::string_view bytes);

class Vocabulary {
 public:
  /// Reads a JSON object {"token": id, …}. Throws Error(data) if an id is not a whole number, occurs twice, or is far greater than the
  /// number of tokens.
  static Vocabulary read(const nlohmann::json& value, const JsonPlace& place);

  /// Adds a token under an unused id. If the text is in the vocabulary already, the text gets this id. Returns false if hundreds of other
  /// texts have the text's hash, which happens only if the texts were chosen to cause it. After false the vocabulary must not be used.
  [[nodiscard]] bool add(std::string_view text, i32 id);
  i32 find(std::string_view text) const;
  bool has(i32 id) const { return id >= 0 && static_cast<size_t>(id) < places_.size() && places_[static_cast<size_t>(id)].length >= 0; }
  /// Returns the text of a token, or "" if there is no such token.
  std::string_view text(i32 id) const;
  /// Returns the number of texts that find() knows.
  i64 size() const { return size_; }
  /// Returns a number that is greater than all ids.
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
  std::vector<Place> places_;  // for each token id, where the token's text is in the block of all texts
  std::vector<i32> slots_ = std::vector<i32>(16, kNoToken);
  i64 size_ = 0, longest_ = 0;
};

/// Returns the token that stands for a byte, such as "<0x0A>".
std::string byte_token(unsigned char byte);

}  // namespace spillway::data
