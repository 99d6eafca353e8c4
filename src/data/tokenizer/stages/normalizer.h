// The "normalizer" of a tokenizer.json: steps that rewrite a text before it is split into pieces. Immutable and thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/stages/aligned_text.h"

namespace spillway::data {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual AlignedText operator()(const AlignedText& text) const = 0;
  /// Returns true if a text may be cut between an ASCII letter and a newline. The two parts can then be
  /// normalized separately, and after normalization the cut is still between a letter and white space.
  virtual bool keeps_line_ends() const { return true; }
  /// Returns true if the step leaves ASCII characters unchanged.
  virtual bool leaves_ascii() const { return false; }
};
using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

/// Runs all steps on the text. Throws Error(data) if the steps need more work
/// than the text's budget allows, or make the text longer than the budget allows.
void normalize(const Normalizers& normalizers, AlignedText& text);

/// Reads the list of steps. Nested sequences are flattened. If `value` is null, there are no steps. Throws Error(data).
Normalizers read_normalizer(const nlohmann::json& value, const JsonPlace& place);

/// Reads a step of type "Precompiled". Its data is SentencePiece's character map:
/// a double-array trie followed by the replacement texts, written in base64.
std::unique_ptr<Normalizer> read_precompiled(const std::string& base64, const JsonPlace& place);

/// The limit on how deep sequences of steps may be nested.
constexpr int kDeepest = 16;

}  // namespace spillway::data
