// The "pre_tokenizer" of a tokenizer.json: steps that cut a text into the pieces that the model sees, some of which rewrite them. Immutable
// and thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "data/tokenizer/aligned_text.h"
#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/regex.h"

namespace spillway::data {

/// A part of a text: an added token, or (id -1) a piece for the model, never empty.
struct Span {
  size_t begin, end;
  i32 id = -1;
};

/// A text and its parts, in order. `at_start`: the text begins where the original begins.
struct Pieces {
  AlignedText text;
  std::vector<Span> spans;
  bool at_start = false;
};

/// What a step means for a cut between an ASCII letter and white space that begins with a newline.
enum class LineEnds {
  hidden,
  kept,
  cut
};  // no cut is safe; it is if another step cuts there; this step cuts there, whatever stands around

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void operator()(Pieces& pieces) const = 0;
  virtual LineEnds line_ends() const { return LineEnds::kept; }
  /// The pattern, if all this step does is to cut at the beginning and the end of each match.
  virtual const Regex* isolates() const { return nullptr; }
  /// Whether this step writes bytes as characters and does nothing else.
  virtual bool maps_bytes() const { return false; }
};
using PreTokenizers = std::vector<std::unique_ptr<PreTokenizer>>;

/// Sequences are made flat, and what does several things becomes several steps; null gives none. Errors: Error(data).
PreTokenizers read_pre_tokenizer(const nlohmann::json& value, const JsonPlace& place);

/// The Metaspace parts of a pre-tokenizer and a decoder.
struct Metaspace {
  enum class Prepend { always, first, never };
  char32_t replacement = 0x2581;
  Prepend prepend = Prepend::always;
  bool split = true;
};
Metaspace read_metaspace(Fields& fields);

}  // namespace spillway::data
