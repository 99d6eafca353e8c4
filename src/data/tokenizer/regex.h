// Regex runs regular expressions as Hugging Face's tokenizers understand them (Oniguruma's Ruby syntax over Unicode) on PCRE2. Immutable
// and thread-safe. The cost of matching is charged to the text's budget, so that no pattern can hang the program. Unicode properties are
// those of PCRE2's version (10.42: Unicode 14); newer characters have none.
//
// PCRE2 does not count the characters that a repeat runs over, nor, in machine code, all of its backtracking. So each pattern is compiled
// into two programs. The quick program looks at a window of a few characters with a small step limit, so its cost per character is bounded;
// nearly all matches in ordinary text end there. If the window or the steps do not suffice, the counted program takes over. Its callouts
// charge each repeat for the characters it ran over, and every alternative that is tried.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/types.h"
#include "data/tokenizer/work_budget.h"

namespace spillway::data {

class Regex {
 public:
  /// Compiles a pattern. Throws Error(data), whose message begins with `where`, if the pattern is invalid, cannot be expressed in PCRE2, or
  /// is longer than 4 KiB.
  Regex(std::string_view pattern, std::string where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Returns the pattern as it was given.
  const std::string& pattern() const { return pattern_; }

  /// Iterates over the matches in a valid UTF-8 text, from left to right, without overlaps. An empty match right behind another match is
  /// skipped.
  class Walk {
   public:
    /// next() throws Error(data) if the budget is used up.
    Walk(const Regex& regex, std::string_view text, WorkBudget& budget);
    /// Uses a budget of its own, for a text that has no other budget.
    Walk(const Regex& regex, std::string_view text);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;
    /// Returns false at the end; otherwise the match is [begin(), end()).
    bool next();
    size_t begin() const { return begin_; }
    size_t end() const { return end_; }

   private:
    struct Data;
    Walk(const Regex& regex, std::string_view text, std::unique_ptr<Data> data);
    int match(size_t from);
    int match_counted(size_t from);
    const Regex& regex_;
    std::string_view text_;
    size_t from_ = 0, begin_ = 0, end_ = 0;
    bool matched_ = false;
    std::unique_ptr<Data> data_;
  };

 private:
  struct Compiled;
  std::string pattern_, where_;
  std::unique_ptr<Compiled> compiled_;
};

/// A pattern translated to PCRE2's syntax.
struct TranslatedPattern {
  std::string quick;
  std::string counted;      // the same with callouts, numbered by RegexCallout
  bool has_window = false;  // true if `quick` may run on a window of the text
};

/// What each callout in a counted pattern charges to the budget.
enum RegexCallout : unsigned {
  kCalloutHere = 0,    // a step; what is scanned next begins here
  kCalloutBehind = 1,  // a step, and the characters scanned since the last callout
  // A step, and the characters since the match began, which a back reference may compare.
  kCalloutReference = 2,
  // A step, and the pattern's longest look-behind, which may be scanned.
  kCalloutBackward = 3,
  // As kCalloutHere, and for the number 4 + n also 2^n characters: the minimum that a repeat scans.
  kCalloutRepeat = 4,
};

/// Translates a pattern. `knows_property` says whether PCRE2 has `\p{name}`. These constructs differ and are rewritten: `\s` `\w` `\d` `\h`
/// and `\b` (other character sets), {n,m}+ (a repeated repeat, not a possessive one), `\p{Script}` (without script extensions), (?m) (the
/// dot matches newlines). Throws Error(data), which begins with `where`.
TranslatedPattern translate_pattern(std::string_view pattern, const std::string& where,
                                    const std::function<bool(const std::string&)>& knows_property);

}  // namespace spillway::data
