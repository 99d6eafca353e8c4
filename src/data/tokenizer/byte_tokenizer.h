// The byte tokenizer needs no file: ids 0 to 255 are the bytes of the text, and there is no end-of-text token. Thread-safe.
#pragma once
#include "data/tokenizer/tokenizer.h"

namespace spillway::data {

class ByteTokenizer : public Tokenizer {
 public:
  static constexpr i64 kVocabulary = 256;

  i64 vocabulary() const override { return kVocabulary; }
  std::vector<i32> encode(std::string_view text, bool with_special = false) const override;
  Encoded encode_with_ranges(std::string_view text, bool with_special = false) const override;
  /// Returns the raw bytes, whether or not they are UTF-8. So encode() and decode() are inverse,
  /// and decoded pieces may be concatenated. An id outside 0-255 becomes U+FFFD, the replacement
  /// character. Such an id occurs when an untrained model with a larger vocabulary samples it.
  std::string decode(std::span<const i32> ids, bool skip_special = false) const override;
  std::unique_ptr<StreamDecoder> stream_decoder(bool skip_special = false) const override;
  std::optional<i32> id_of(std::string_view token) const override;
  std::string token(i32 id) const override;
  NamedTokens named() const override { return {}; }
  const Around& around() const override;
  i64 last_cut(std::string_view text) const override { return static_cast<i64>(text.size()); }
};

}  // namespace spillway::data
