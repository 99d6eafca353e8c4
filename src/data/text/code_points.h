// Implements Python's string functions on UTF-8 text: like Python, they treat a
// text as a sequence of code points. All are pure functions and expect valid UTF-8.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::data::chat {

/// Returns the number of bytes of the code point that begins at byte `at`.
size_t code_point_bytes(std::string_view text, size_t at);
char32_t code_point_at(std::string_view text, size_t at);
size_t code_point_count(std::string_view text);
/// Returns the byte at which the code point with index `nth` (from 0) begins, or the text's size if the text has too few code points.
size_t code_point_offset(std::string_view text, size_t nth);

/// Returns the byte at which the code point before byte `end` begins. `end` must be above 0.
size_t code_point_before(std::string_view text, size_t end);

/// Writes the UTF-8 of a code point to `bytes` and returns the number of bytes.
size_t encode_utf8(char32_t code_point, char (&bytes)[4]);

template <class Text>
void append_utf8(Text& out, char32_t code_point) {
  char bytes[4];
  out.append(bytes, encode_utf8(code_point, bytes));
}

/// Iterates over the code points of a text: `for (const char32_t c : CodePoints(text))`.
class CodePoints {
 public:
  class Iterator {
   public:
    using value_type = char32_t;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Iterator(std::string_view text, size_t at) : text_(text), at_(at) {}
    char32_t operator*() const { return code_point_at(text_, at_); }
    Iterator& operator++() {
      at_ += code_point_bytes(text_, at_);
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    std::string_view text_;
    size_t at_ = 0;
  };

  explicit CodePoints(std::string_view text) : text_(text) {}
  Iterator begin() const { return {text_, 0}; }
  Iterator end() const { return {text_, text_.size()}; }

 private:
  std::string_view text_;
};

/// The classes of characters. Each function returns what Python's str.isspace, isalpha, isdigit, isdecimal, isnumeric, isprintable,
/// isupper or islower returns for a single character. is_word() is true for what `\w` matches: a letter, a digit or _.
bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_decimal(char32_t c);
bool is_numeric(char32_t c);
bool is_printable(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_word(char32_t c);

/// upper(), lower(), capitalize() and title() return what the methods of the same names of Python's str return.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);

/// strip() removes white space, or the characters in `chars`, from the ends of the text, as Python's str.strip does. `sides` is -1 for
/// the left end, 1 for the right end, 0 for both.
std::string_view strip(std::string_view text, int sides);
std::string_view strip(std::string_view text, std::string_view chars, int sides);

}  // namespace spillway::data::chat
