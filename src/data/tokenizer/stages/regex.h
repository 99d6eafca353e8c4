// Regex runs regular expressions on PCRE2 with the meaning that they have in Hugging Face's tokenizers (Oniguruma's Ruby syntax over
// Unicode). Immutable and thread-safe. The cost of matching is charged to the text's budget, so that no pattern can hang the program.
// Unicode properties are those of PCRE2's version (10.42: Unicode 14). A newer character is matched as an older one of the same category
// (with_old_characters() in data/text/unicode.h).
//
// PCRE2 does not count the characters that a repeat runs over. In machine code it does not count all of its backtracking either. So each
// pattern is compiled into two programs. The quick program looks at a window of a few characters with a small step limit, so its cost
// per character is bounded; it finds nearly all matches in ordinary text. If the window or the steps are not enough, the counted program
// takes over. It contains callouts, which charge each repeat for the characters that it ran over, and every alternative that is tried.
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
  /// Compiles a pattern. Throws an Error(data) whose message begins with `where`, if the
  /// pattern is invalid, is longer than 4 KiB, or uses something that PCRE2 does not have.
  Regex(std::string_view pattern, std::string where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Returns the pattern in Oniguruma's syntax, as the constructor got it.
  const std::string& pattern() const { return pattern_; }

  /// Iterates over the matches in a valid UTF-8 text, from left to right and without overlaps. An empty match directly after another match
  /// is skipped.
  class Walk {
   public:
    /// Begins a walk that charges the matching to `budget`. next() throws Error(data) if the budget is used up.
    Walk(const Regex& regex, std::string_view text, WorkBudget& budget);
    /// Begins a walk with a new budget, for a text that has no budget yet.
    Walk(const Regex& regex, std::string_view text);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;
    /// Moves to the next match, which is then at [begin(), end()). Returns false if there are no more matches.
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
  std::string counted;      // `quick` with callouts (calls of our code during matching), numbered as in RegexCallout
  bool has_window = false;  // true if `quick` may run on a window of the text
};

/// Selects what a callout in a counted pattern charges to the budget. A callout is a point in the pattern at which PCRE2 calls our code.
enum RegexCallout : unsigned {
  kCalloutHere = 0,    // charges one step; characters that are scanned from this point on are charged by the next callout
  kCalloutBehind = 1,  // charges one step, and the characters scanned since the last callout
  // Charges one step, and the characters since the beginning of the match, because a back reference may compare that many.
  kCalloutReference = 2,
  // Charges one step, and the length of the pattern's longest look-behind, because that many characters may be scanned.
  kCalloutBackward = 3,
  // Callout number 4 + n charges what kCalloutHere charges, and also 2^n characters. 2^n is the smallest power of two above the least
  // number of characters that the repeat after the callout scans.
  kCalloutRepeat = 4,
};

/// Translates a pattern to PCRE2's syntax. `knows_property` says whether PCRE2 has `\p{name}`. Some constructs
/// have another meaning in PCRE2 and are rewritten: `\s` `\w` `\d` `\h` and `\b` (other character sets), {n,m}+
/// (in Oniguruma a repeated repeat, not a possessive one), `\p{Script}` (in Oniguruma without script extensions),
/// (?m) (in Oniguruma the dot then matches newlines). Throws an Error(data) that begins with `where`.
TranslatedPattern translate_pattern(std::string_view pattern, const std::string& where,
                                    const std::function<bool(const std::string&)>& knows_property);

}  // namespace spillway::data
