// HuggingFaceTokenizer is the tokenizer that a tokenizer.json describes. It consists of added tokens, a normalizer, a pre-tokenizer, a
// model, a post-processor and a decoder. Immutable and thread-safe: calls share only a list of reusable working memory, which a mutex
// protects.
#pragma once
#include <mutex>

#include "data/tokenizer/hugging_face/added_tokens.h"
#include "data/tokenizer/models/model.h"
#include "data/tokenizer/stages/decoder.h"
#include "data/tokenizer/stages/normalizer.h"
#include "data/tokenizer/stages/post_processor.h"
#include "data/tokenizer/stages/pre_tokenizer.h"
#include "data/tokenizer/tokenizer.h"

namespace spillway::data {

class HuggingFaceTokenizer : public Tokenizer {
 public:
  /// Builds the tokenizer from the parsed file; `place` names the file in error messages. Throws Error(data) if the file is invalid.
  HuggingFaceTokenizer(const nlohmann::json& file, const JsonPlace& place);

  void set_named(const NamedTokens& named) { named_ = named; }

  i64 vocabulary() const override { return vocabulary_; }
  std::vector<i32> encode(std::string_view text, bool with_special) const override;
  Encoded encode_with_ranges(std::string_view text, bool with_special) const override;
  std::string decode(std::span<const i32> ids, bool skip_special) const override;
  std::unique_ptr<StreamDecoder> stream_decoder(bool skip_special) const override;
  std::optional<i32> id_of(std::string_view token) const override;
  std::string token(i32 id) const override;
  NamedTokens named() const override { return named_; }
  const Around& around() const override { return around_; }
  i64 last_cut(std::string_view text) const override;

 private:
  class Stream;
  class Borrowed;
  struct Output;
  void encode_into(std::string_view text, bool with_special, Output& out) const;
  void encode_utf8(std::string_view text, Output& out) const;
  void encode_broken(std::string_view text, Output& out) const;
  void find_added(std::string_view text, bool normalized, Output& out, std::vector<Span>& into) const;
  void encode_stretch(AlignedText stretch, bool at_start, Output& out) const;
  void encode_plain(std::string_view stretch, i64 begin, Output& out) const;
  void encode_pieces(const Pieces& pieces, Output& out) const;
  std::string_view shown(i32 id, bool skip_special) const;
  void find_line_ends();

  std::string file_;  // the name of the tokenizer's file, for error messages
  Normalizers normalizers_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<Model> model_;
  AddedTokens added_;
  Around around_;
  std::optional<Decoder> decoder_;
  NamedTokens named_;
  i64 vocabulary_ = 0;
  // True if the fast path may be used: each piece for the model is an unchanged part of the text, and
  // at most one pattern cuts the text. plain_ is for any text, plain_ascii_ for texts of ASCII only.
  bool plain_ = false, plain_ascii_ = false;
  const Regex* pattern_ = nullptr;  // the pattern that cuts the text in the fast path; null if nothing cuts it
  bool cut_at_line_ends_ = false;
  mutable std::mutex lock_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace spillway::data
