// The "normalizer" of a tokenizer.json: steps that rewrite a text before it is cut. Immutable and thread-safe.
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
  /// Whether two texts, the first ending in an ASCII letter, the second beginning with a newline, may be normalized apart, and the boundary
  /// stays one between a letter and white space.
  virtual bool keeps_line_ends() const { return true; }
  /// Whether ASCII stays as it is.
  virtual bool leaves_ascii() const { return false; }
};
using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

/// Runs all steps. Errors: Error(data) when the text's budget is used up or the text grows over it.
void normalize(const Normalizers& normalizers, AlignedText& text);

/// Sequences are made flat; null gives no step. Errors: Error(data).
Normalizers read_normalizer(const nlohmann::json& value, const JsonPlace& place);

/// The "Precompiled" step: SentencePiece's map of characters, base64 of a double-array trie and the texts behind it.
std::unique_ptr<Normalizer> read_precompiled(const std::string& base64, const JsonPlace& place);

/// Sequences inside of sequences may be this deep.
constexpr int kDeepest = 16;

}  // namespace spillway::data
