// Tokenizer is the interface that converts text to token ids and back. read_tokenizer() reads a tokenizer from Hugging Face's files. Every
// method is const and thread-safe; a tokenizer never changes after construction. A text may consist of any bytes: each maximal broken UTF-8
// sequence is read as one U+FFFD (Unicode 3.9, like Python's errors="replace"). Only ByteTokenizer keeps every byte.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_range.h"

namespace spillway::data {

/// Token ids, and for each id the bytes of the original text that it stands for.
struct Encoded {
  std::vector<i32> ids;
  std::vector<ByteRange> ranges;
};

/// Turns ids that arrive one at a time into text. The results of all put() calls and of finish(), joined, equal decode() of all ids. Not
/// thread-safe.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;
  /// Adds an id and returns the text that later ids can no longer change: whole characters only, and often nothing.
  virtual std::string put(i32 id) = 0;
  /// Returns the text that the decoder still holds back, such as the bytes of an incomplete
  /// character. Call finish() after the last id; the decoder cannot be used afterwards.
  virtual std::string finish() = 0;
};

/// The special tokens that a tokenizer's configuration names. A member has no value if the configuration does not name that token.
struct NamedTokens {
  std::optional<i32> end_of_text, begin_of_text, padding, unknown;
};

/// The special tokens that a tokenizer's post-processor puts before and after a text.
struct Around {
  std::vector<i32> before, behind;
};

/// Both functions return the special tokens that are still to be put around a text whose ids are `ids`: missing_before()
/// those of `around.before` with which the ids do not begin, and missing_behind() those of `around.behind` with which they
/// do not end. So a text that already contains its first or last special token does not get a second one. Pure functions.
std::span<const i32> missing_before(const Around& around, std::span<const i32> ids);
std::span<const i32> missing_behind(const Around& around, std::span<const i32> ids);

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Returns the size of the vocabulary; all ids are below it.
  virtual i64 vocabulary() const = 0;

  /// Encodes a text. If the text contains an added token (a special token or another), that part of the text becomes the token's id.
  /// `with_special` adds the tokens of around() even if the text has them already, as Hugging Face's `tokenizers` does. For rows and
  /// prompts use encode_with_around() instead.
  virtual std::vector<i32> encode(std::string_view text, bool with_special = false) const = 0;
  /// Returns the ids of encode() with their byte ranges. If a token stands for only some bytes of a character, its
  /// range has just those bytes, provided that nothing has rewritten the character. Text that a normalizer inserts
  /// before the first character gets the range of that character. Special tokens around the text have empty ranges.
  virtual Encoded encode_with_ranges(std::string_view text, bool with_special = false) const = 0;

  /// Decodes ids. `skip_special` leaves out special tokens. Ids that stand for no token are left out (ByteTokenizer decodes them to
  /// U+FFFD).
  virtual std::string decode(std::span<const i32> ids, bool skip_special = false) const = 0;
  virtual std::unique_ptr<StreamDecoder> stream_decoder(bool skip_special = false) const = 0;

  /// Returns the id of a token. The token must be given as the vocabulary
  /// writes it: a byte-level token that starts with a space begins with U+0120.
  virtual std::optional<i32> id_of(std::string_view token) const = 0;
  /// Returns the token's text, or "" if the id stands for no token.
  virtual std::string token(i32 id) const = 0;
  virtual NamedTokens named() const = 0;
  /// Returns the tokens that the post-processor of tokenizer.json puts around a text. As in transformers 5,
  /// `add_bos_token` and `add_eos_token` of tokenizer_config.json are ignored if there is a tokenizer.json.
  virtual const Around& around() const = 0;

  /// Returns the last position at which `text` may be cut: the ids of both parts, joined, equal the ids of the whole, whatever text
  /// follows. Returns 0 if no such position is known, as when a space is put before each text, or when tokens may span any character.
  virtual i64 last_cut(std::string_view text) const = 0;
};

/// Returns the ids that `tokenizer(text)` gives in transformers, with one exception: special tokens that the text already contains at its
/// ends are not added again.
std::vector<i32> encode_with_around(const Tokenizer& tokenizer, std::string_view text);

/// Reads a Hugging Face tokenizer.json, given as a file or its folder. The files tokenizer_config.json and special_tokens_map.json next to
/// it name special tokens such as the end of text. Ids and texts equal those of Hugging Face's `tokenizers`; the truncation and padding
/// settings in the file are not used. Throws Error(data), which names the file, the key and its value, if a file is invalid or describes
/// something that this program does not support.
std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& file_or_folder);

}  // namespace spillway::data
