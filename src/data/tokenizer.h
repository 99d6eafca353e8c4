// Text <-> token ids. The byte tokenizer needs no file: ids 0-255 are the bytes of the text, there is no end-of-text token. Thread-safe.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::data {

class ByteTokenizer {
 public:
  static constexpr i64 kVocabulary = 256;

  std::vector<i32> encode(std::string_view text) const;
  /// The raw bytes, whether or not they are UTF-8, so that encode and decode are inverse and streamed pieces may be concatenated. An id
  /// outside 0-255 (an untrained model with a larger vocabulary samples them) becomes U+FFFD, the replacement character.
  std::string decode(std::span<const i32> ids) const;
};

}  // namespace spillway::data
