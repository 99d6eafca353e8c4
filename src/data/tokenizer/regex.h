// Regular expressions as Hugging Face's tokenizers understand them (Oniguruma's Ruby syntax over Unicode), run by PCRE2. Immutable and
// thread-safe. A match that would take more than a bounded number of steps is an Error(data), so that no pattern can hang a program.
// Properties are those of PCRE2's Unicode: characters younger than it (10.42: Unicode 14) have none.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::data {

class Regex {
 public:
  /// Errors: Error(data), whose message begins with `where`, if the pattern is none or means something PCRE2 cannot say.
  Regex(std::string_view pattern, std::string where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// The pattern as it was given.
  const std::string& pattern() const { return pattern_; }

  /// Walks over the matches in valid UTF-8, from left to right, none over another; an empty one right behind a match does not count.
  class Walk {
   public:
    Walk(const Regex& regex, std::string_view text);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;
    /// False at the end; else the match is [begin(), end()).
    bool next();
    size_t begin() const { return begin_; }
    size_t end() const { return end_; }

   private:
    int match(size_t from);
    const Regex& regex_;
    std::string_view text_;
    size_t from_ = 0, begin_ = 0, end_ = 0;
    bool matched_ = false;
    struct Data;
    std::unique_ptr<Data> data_;
  };

 private:
  struct Compiled;
  std::string pattern_, where_;
  std::unique_ptr<Compiled> compiled_;
};

/// The pattern in PCRE2's words. `knows_property` says whether PCRE2 has `\p{name}`. What means the same in both stays; these differ: `\s`
/// `\w` `\d` `\h` and `\b` (other sets), {n,m}+ (a repeated repeat, not a possessive one), `\p{Script}` (without extensions), (?m) (the dot
/// takes newlines). Errors: Error(data) that begins with `where`.
std::string pcre2_pattern(std::string_view pattern, const std::string& where,
                          const std::function<bool(const std::string&)>& knows_property);

}  // namespace spillway::data
