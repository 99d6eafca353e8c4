// A "pattern" of a tokenizer.json, {"String": …} or {"Regex": …}, and functions that split texts at its matches. Immutable and thread-safe.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/regex.h"

namespace spillway::data {

/// A part of a text: either a match or the text between two matches.
struct Segment {
  size_t begin, end;
  bool match;
};
using Segments = std::vector<Segment>;

class Pattern {
 public:
  /// Reads a pattern. Throws Error(data) if it is invalid.
  static Pattern read(const nlohmann::json& value, const JsonPlace& place);

  /// Returns the text of a pattern that is a plain string, which is never empty; none for a regular expression.
  const std::optional<std::string>& literal() const { return literal_; }
  /// For a plain string, returns for each prefix the length of its longest proper border: the longest shorter prefix with which it ends.
  const std::vector<u32>& borders() const { return borders_; }
  const Regex* regex() const { return regex_ ? &*regex_ : nullptr; }
  /// Calls part(begin, end, match) for all parts of the text, in order. Throws Error(data) if the budget is used up.
  template <class Part>
  void walk(std::string_view text, WorkBudget& budget, const Part& part) const;
  /// Like walk(), but stores the parts in a list.
  void segments(std::string_view text, WorkBudget& budget, Segments& into) const;

 private:
  void find_borders();
  std::optional<std::string> literal_;
  std::vector<u32> borders_;
  std::optional<Regex> regex_;
};

/// Like std::string_view::find(), but in linear time whatever the text holds. find_bytes() uses the library's function for short texts,
/// where it is faster.
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

/// How matches are combined with the text around them.
enum class Behaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };
Behaviour read_behaviour(const std::string& name, const JsonPlace& place);
/// Applies the behaviour: leaves the remaining parts in order, none of them empty. Their `match` flags have no meaning afterwards.
void apply(Behaviour behaviour, Segments& segments);

}  // namespace spillway::data
