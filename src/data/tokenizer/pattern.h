// A "pattern" of a tokenizer.json, {"String": …} or {"Regex": …}, and cutting texts at its matches. Immutable and thread-safe.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/regex.h"

namespace spillway::data {

/// A part of a text, and whether it is a match or lies between matches.
struct Segment {
  size_t begin, end;
  bool match;
};
using Segments = std::vector<Segment>;

class Pattern {
 public:
  /// Errors: Error(data).
  static Pattern read(const nlohmann::json& value, const JsonPlace& place);

  /// Set if the pattern is a string; never empty.
  const std::optional<std::string>& literal() const { return literal_; }
  /// Of a string: for each of its beginnings how long the longest shorter beginning is that it ends with.
  const std::vector<u32>& borders() const { return borders_; }
  const Regex* regex() const { return regex_ ? &*regex_ : nullptr; }
  /// Calls part(begin, end, match) for the whole text in order. Errors: Error(data) when the budget is used up.
  template <class Part>
  void walk(std::string_view text, WorkBudget& budget, const Part& part) const;
  /// The same as a list.
  void segments(std::string_view text, WorkBudget& budget, Segments& into) const;

 private:
  void find_borders();
  std::optional<std::string> literal_;
  std::vector<u32> borders_;
  std::optional<Regex> regex_;
};

/// std::string_view::find() in time in proportion to the text, whatever it holds. The library's own way is faster in a short text.
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

/// What becomes of the matches.
enum class Behaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };
Behaviour read_behaviour(const std::string& name, const JsonPlace& place);
/// The parts that stay, in order, none of them empty; `match` says nothing any more.
void apply(Behaviour behaviour, Segments& segments);

}  // namespace spillway::data
