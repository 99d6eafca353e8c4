// The "normalizer" of a tokenizer.json: steps that rewrite a text before it is split into pieces. Immutable and thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "data/tokenizer/aligned_text.h"
#include "data/tokenizer/json_fields.h"

namespace spillway::data {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual AlignedText operator()(const AlignedText& text) const = 0;
  /// Returns true if a text may be cut between an ASCII letter and a newline: both parts can be normalized separately, and the cut remains
  /// one between a letter and white space.
  virtual bool keeps_line_ends() const { return true; }
  /// Returns true if ASCII characters stay unchanged.
  virtual bool leaves_ascii() const { return false; }
};
using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

/// Runs all steps on the text. Throws Error(data) if the text's budget is used up or the text grows beyond it.
void normalize(const Normalizers& normalizers, AlignedText& text);

/// Reads the steps. Nested sequences are flattened; null gives no step. Throws Error(data).
Normalizers read_normalizer(const nlohmann::json& value, const JsonPlace& place);

/// Reads the "Precompiled" step: SentencePiece's character map, as base64 of a double-array trie and the replacement texts.
std::unique_ptr<Normalizer> read_precompiled(const std::string& base64, const JsonPlace& place);

/// Limit on the nesting of sequences.
constexpr int kDeepest = 16;

}  // namespace spillway::data
