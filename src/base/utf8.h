// Reads and writes UTF-8 code points and repairs broken UTF-8. Each maximal part of a sequence that cannot be completed becomes one U+FFFD
// (Unicode 15, section 3.9). Pure functions.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway {

inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

/// The first character of a byte string, or a broken UTF-8 sequence in its place; it takes `bytes` bytes. `unfinished` means that the
/// sequence is broken only because the input ends.
struct Utf8Unit {
  char32_t code = 0xFFFD;
  int bytes = 1;
  bool valid = false, unfinished = false;
};
/// Decodes the first character, or broken sequence, of `bytes`, which must not be empty.
Utf8Unit utf8_unit(std::string_view bytes);

/// Returns whether all bytes are valid UTF-8, without overlong forms and surrogates.
bool is_utf8(std::string_view bytes);
bool is_ascii(std::string_view bytes);
/// Returns how many bytes at the end (0 to 3) are the beginning of a character that further bytes could complete.
int unfinished_utf8(std::string_view bytes);
/// Returns the text with each broken sequence replaced by U+FFFD.
std::string replace_broken_utf8(std::string_view bytes);

/// Returns the code point at offset `at` of `text`, which must be valid UTF-8, and moves `at` behind that code point.
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

/// Returns the offset of the last character of a nonempty, valid UTF-8 text.
inline size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void append_code(std::string& text, char32_t code);
std::string utf8_of(char32_t code);

}  // namespace spillway
