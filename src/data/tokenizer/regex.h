// Regular expressions as Hugging Face's tokenizers understand them (Oniguruma's Ruby syntax over Unicode), run by PCRE2. Immutable and
// thread-safe. What matching costs is charged to the budget of the text, so that no pattern can hang a program.
// Properties are those of PCRE2's Unicode: characters younger than it (10.42: Unicode 14) have none.
//
// PCRE2 counts neither the characters that a repeat runs over nor, in machine code, all of its backtracking. So there are two programs of
// each pattern. The quick one looks at a window of a few characters and has few steps: nearly every match of a tokenizer's text ends
// there, and what it may cost at each character is a constant. Where the window or the steps do not do, the counted program takes its
// place, in which callouts charge each repeat for what it ran over and for every way that is tried.
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
  /// Errors: Error(data), whose message begins with `where`, if the pattern is none, means something PCRE2 cannot say, or is over 4 KiB.
  Regex(std::string_view pattern, std::string where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// The pattern as it was given.
  const std::string& pattern() const { return pattern_; }

  /// Walks over the matches in valid UTF-8, from left to right, none over another; an empty one right behind a match does not count.
  class Walk {
   public:
    /// Errors of next(): Error(data) when the budget is used up.
    Walk(const Regex& regex, std::string_view text, WorkBudget& budget);
    /// For a text that nothing else works on: with a budget of its own.
    Walk(const Regex& regex, std::string_view text);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;
    /// False at the end; else the match is [begin(), end()).
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

/// A pattern in PCRE2's words.
struct TranslatedPattern {
  std::string quick;
  std::string counted;      // the same with callouts: numbers of RegexCallout
  bool has_window = false;  // whether `quick` may be run on the beginning of a text
};

/// What a callout in a counted pattern charges.
enum RegexCallout : unsigned {
  kCalloutHere = 0,       // a step: what is scanned next begins here
  kCalloutBehind = 1,     // a step, and the characters since the last callout
  kCalloutReference = 2,  // a step, and the characters since the match began: what a back reference may compare
  kCalloutBackward = 3,   // a step, and the longest way that the pattern looks back: what a look-behind goes
  kCalloutRepeat = 4,     // as kCalloutHere, and 2^n characters by the number 4 + n: what a repeat must have at least
};

/// `knows_property` says whether PCRE2 has `\p{name}`. What means the same in both stays; these differ: `\s` `\w` `\d` `\h` and `\b` (other
/// sets), {n,m}+ (a repeated repeat, not a possessive one), `\p{Script}` (without extensions), (?m) (the dot takes newlines). Errors:
/// Error(data) that begins with `where`.
TranslatedPattern translate_pattern(std::string_view pattern, const std::string& where,
                                    const std::function<bool(const std::string&)>& knows_property);

}  // namespace spillway::data
