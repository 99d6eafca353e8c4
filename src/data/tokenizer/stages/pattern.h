// A "pattern" of a tokenizer.json, {"String": …} or {"Regex": …}, and functions that cut texts at the pattern's matches. Immutable and
// thread-safe.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/stages/regex.h"

namespace spillway::data {

/// A part of a text: either a match or the text between two matches.
struct Segment {
  size_t begin, end;
  bool match;
};
using Segments = std::vector<Segment>;

class Pattern {
 public:
  /// Reads a pattern. Throws Error(data) if the pattern is invalid.
  static Pattern read(const nlohmann::json& value, const JsonPlace& place);

  /// Returns the text of a pattern that is a plain string, which is never empty. For a regular expression returns nothing.
  const std::optional<std::string>& literal() const { return literal_; }
  /// Returns the borders of a pattern that is a plain string: for each of its prefixes, the length of that
  /// prefix's longest proper border. A border of a text is a shorter text with which it both begins and ends.
  const std::vector<u32>& borders() const { return borders_; }
  const Regex* regex() const { return regex_ ? &*regex_ : nullptr; }
  /// Calls part(begin, end, match) for each part of the text, in order: for each match, and for each text between matches. Throws
  /// Error(data) if the budget is used up.
  template <class Part>
  void walk(std::string_view text, WorkBudget& budget, const Part& part) const;
  /// Stores the parts that walk() would visit in a list.
  void segments(std::string_view text, WorkBudget& budget, Segments& into) const;

 private:
  void find_borders();
  std::optional<std::string> literal_;
  std::vector<u32> borders_;
  std::optional<Regex> regex_;
};

/// Finds `what` in `text` as std::string_view::find() does, but in linear time for any
/// text. find_bytes() uses std::string_view::find() for short texts, where that is faster.
size_t find_in_long(std::string_view text, std::string_view what, size_t from);
inline size_t find_bytes(std::string_view text, std::string_view what, size_t from) {
  constexpr size_t kShort = 64;
  return text.size() - from <= kShort ? text.find(what, from) : find_in_long(text, what, from);
}

template <class Part>
void Pattern::walk(std::string_view text, WorkBudget& budget, const Part& part) const {
  size_t behind = 0;
  const auto match = [&](size_t begin, size_t end) {
    if (behind != begin) part(behind, begin, false);
    part(begin, end, true);
    behind = end;
  };
  if (literal_) {
    size_t at = find_bytes(text, *literal_, 0);
    for (; at != std::string_view::npos; at = find_bytes(text, *literal_, at + literal_->size())) match(at, at + literal_->size());
  } else if (!text.empty()) {
    Regex::Walk matches(*regex_, text, budget);
    while (matches.next()) match(matches.begin(), matches.end());
  }
  if (behind != text.size()) part(behind, text.size(), false);
}

/// Selects what becomes of the matches when a text is split at them. The names are those of Hugging Face's tokenizers.
enum class Behaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };
Behaviour read_behaviour(const std::string& name, const JsonPlace& place);
/// Removes, isolates or merges the segments of a text as `behaviour` says. The segments that
/// remain are in order, and none is empty. Their `match` flags have no meaning afterwards.
void apply(Behaviour behaviour, Segments& segments);

}  // namespace spillway::data
