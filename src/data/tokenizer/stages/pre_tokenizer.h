// The "pre_tokenizer" of a tokenizer.json: steps that split a text into the pieces that the model sees. Some steps also rewrite the pieces.
// Immutable and thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/stages/aligned_text.h"
#include "data/tokenizer/stages/regex.h"

namespace spillway::data {

/// A part of a text: an added token (id at least 0), or a piece for the model (id -1). A Span is never empty.
struct Span {
  size_t begin, end;
  i32 id = -1;
};

/// A text and its parts, in order. `at_start` is true if this text begins where the whole original text begins.
struct Pieces {
  AlignedText text;
  std::vector<Span> spans;
  bool at_start = false;
};

/// Tells whether a text may be cut between an ASCII letter and a following
/// newline (possibly with more white space), as far as one step is concerned.
enum class LineEnds {
  hidden,  // a cut there may change the result
  kept,    // a cut there is safe, provided that another step always cuts at this place
  cut      // a cut there is safe, because this step always cuts at this place, whatever the text around it
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void operator()(Pieces& pieces) const = 0;
  virtual LineEnds line_ends() const { return LineEnds::kept; }
  /// Returns the pattern of a step that only cuts at the beginning and end of each match of a pattern. Returns null for any other step.
  virtual const Regex* isolates() const { return nullptr; }
  /// Returns true if the step does nothing but map bytes to byte characters (byte_level.h).
  virtual bool maps_bytes() const { return false; }
};
using PreTokenizers = std::vector<std::unique_ptr<PreTokenizer>>;

/// Reads the list of steps. Nested sequences are flattened, and an entry that does several things becomes several steps. If `value` is
/// null, there are no steps. Throws Error(data).
PreTokenizers read_pre_tokenizer(const nlohmann::json& value, const JsonPlace& place);

/// The settings of Metaspace, which a pre-tokenizer and a decoder share.
struct Metaspace {
  enum class Prepend { always, first, never };
  char32_t replacement = 0x2581;
  Prepend prepend = Prepend::always;
  bool split = true;
};
Metaspace read_metaspace(Fields& fields);

}  // namespace spillway::data
