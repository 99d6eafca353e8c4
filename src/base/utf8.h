// UTF-8: reading and writing code points, and what becomes of bytes that are not UTF-8 (Unicode 15, section 3.9: each maximal part of a
// sequence that cannot go on becomes one U+FFFD). Pure functions.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway {

inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

/// What stands at the beginning of some bytes (at least one): a character, or a broken sequence of `bytes` bytes. `unfinished`: broken only
/// because the bytes end.
struct Utf8Unit {
  char32_t code = 0xFFFD;
  int bytes = 1;
  bool valid = false, unfinished = false;
};
Utf8Unit utf8_unit(std::string_view bytes);

/// Whether all of it is UTF-8: no overlong forms, no surrogates.
bool is_utf8(std::string_view bytes);
bool is_ascii(std::string_view bytes);
/// How many bytes at the end are a character's beginning that more bytes may complete: 0 to 3.
int unfinished_utf8(std::string_view bytes);
/// Broken sequences replaced by U+FFFD.
std::string replace_broken_utf8(std::string_view bytes);

/// The code point at `at` of valid UTF-8; moves `at` behind it.
inline char32_t next_code(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return ++at, lead;
  if (lead < 0xE0) {
    const char32_t code = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    return at += 2, code;
  }
  if (lead < 0xF0) {
    const char32_t code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    return at += 3, code;
  }
  const char32_t code = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  return at += 4, code;
}

/// Where the last character of valid, not empty UTF-8 begins.
inline size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void append_code(std::string& text, char32_t code);
std::string utf8_of(char32_t code);

}  // namespace spillway
