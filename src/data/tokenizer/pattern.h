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
  const Regex* regex() const { return regex_ ? &*regex_ : nullptr; }
  /// Calls part(begin, end, match) for the whole text in order.
  template <class Part>
  void walk(std::string_view text, const Part& part) const;
  /// The same as a list.
  void segments(std::string_view text, Segments& into) const;

 private:
  std::optional<std::string> literal_;
  std::optional<Regex> regex_;
};

template <class Part>
void Pattern::walk(std::string_view text, const Part& part) const {
  size_t behind = 0;
  const auto match = [&](size_t begin, size_t end) {
    if (behind != begin) part(behind, begin, false);
    part(begin, end, true);
    behind = end;
  };
  if (literal_) {
    for (size_t at = text.find(*literal_); at != std::string_view::npos; at = text.find(*literal_, at + literal_->size())) {
      match(at, at + literal_->size());
    }
  } else if (!text.empty()) {
    Regex::Walk matches(*regex_, text);
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
