// Text <-> token ids: the interface, and how one is read from a Hugging Face file. Every method is const and thread-safe; a tokenizer never
// changes after it was made. A text is any bytes: what is not UTF-8 is taken as U+FFFD, once for each maximal broken sequence (Unicode 3.9,
// the way of Python's errors="replace"); ByteTokenizer alone keeps every byte.
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

/// Ids and, for each, the bytes of the original text it stands for.
struct Encoded {
  std::vector<i32> ids;
  std::vector<ByteRange> ranges;
};

/// Turns ids that arrive one at a time into text. All that put() and finish() give, joined, is decode() of all ids. Not thread-safe.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;
  /// The text that is certain now and was not before: never half a character, often empty.
  virtual std::string put(i32 id) = 0;
  /// The rest; the decoder is used up.
  virtual std::string finish() = 0;
};

/// The tokens that a tokenizer's configuration names; none where it names none.
struct NamedTokens {
  std::optional<i32> end_of_text, begin_of_text, padding, unknown;
};

/// The special tokens that a tokenizer's post-processor puts before and behind a text.
struct Around {
  std::vector<i32> before, behind;
};

/// Those of `around.before` that a text of these ids does not begin with, and those of `around.behind` that it does not end with: a text
/// that has its first or last special token written in it gets no second one. Pure.
std::span<const i32> missing_before(const Around& around, std::span<const i32> ids);
std::span<const i32> missing_behind(const Around& around, std::span<const i32> ids);

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// All ids are below it.
  virtual i64 vocabulary() const = 0;

  /// Added tokens (special ones too) that are written in the text become themselves. `with_special` adds those of around(), whatever the
  /// text has, as Hugging Face's `tokenizers` does; rows and prompts are encode_with_around()'s.
  virtual std::vector<i32> encode(std::string_view text, bool with_special = false) const = 0;
  /// The same ids. A token of a part of a character's bytes covers those bytes alone if nothing has rewritten the character; what a
  /// normalizer puts in front of a text covers the first character; special tokens around the text cover nothing.
  virtual Encoded encode_with_ranges(std::string_view text, bool with_special = false) const = 0;

  /// `skip_special` leaves special tokens out. Ids that are no token are left out (ByteTokenizer: become U+FFFD).
  virtual std::string decode(std::span<const i32> ids, bool skip_special = false) const = 0;
  virtual std::unique_ptr<StreamDecoder> stream_decoder(bool skip_special = false) const = 0;

  /// As the vocabulary writes it (a byte-level token of a space begins with U+0120).
  virtual std::optional<i32> id_of(std::string_view token) const = 0;
  /// Empty if the id is no token.
  virtual std::string token(i32 id) const = 0;
  virtual NamedTokens named() const = 0;
  /// What the post-processor of tokenizer.json puts around a text. As in transformers 5, `add_bos_token` and `add_eos_token` of
  /// tokenizer_config.json say nothing beside a tokenizer.json.
  virtual const Around& around() const = 0;

  /// The last place at which `text` may be cut: encode() of both parts, joined, is encode() of the whole, whatever follows the text. 0 if
  /// none is known: where a space is put before each text, or tokens may reach over any character.
  virtual i64 last_cut(std::string_view text) const = 0;
};

/// The ids that `tokenizer(text)` gives in transformers, but for special tokens that the text has already.
std::vector<i32> encode_with_around(const Tokenizer& tokenizer, std::string_view text);

/// A Hugging Face tokenizer.json, or the folder it lies in; tokenizer_config.json and special_tokens_map.json beside it name the end of
/// text and others. Gives the ids and texts of Hugging Face's `tokenizers`; its truncation and padding settings are not used. Errors:
/// Error(data) names the file, the key and what stands there, also for every kind of part that this program does not know.
std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& file_or_folder);

}  // namespace spillway::data
