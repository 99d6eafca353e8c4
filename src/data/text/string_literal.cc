#include "data/text/string_literal.h"

#include <fmt/format.h>

#include <charconv>

#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

// Parses a number of at least `least` and at most `most` digits at `at`, and moves
// `at` past the number. Returns nothing if there are fewer digits than `least`.
std::optional<char32_t> digits(std::string_view text, size_t& at, size_t least, size_t most, int base) {
  u32 value = 0;
  const char* begin = text.data() + at;
  const auto [end, error] = std::from_chars(begin, begin + std::min(most, text.size() - at), value, base);
  const auto count = static_cast<size_t>(end - begin);
  if (error != std::errc() || count < least) return {};
  at += count;
  return static_cast<char32_t>(value);
}

}  // namespace

std::string normalize_newlines(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    plain += text[i] == '\r' ? '\n' : text[i];
  }
  return plain;
}

std::optional<std::string> unescape(std::string_view text, std::string& why) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i++];
      continue;
    }
    const char letter = text[i + 1];
    constexpr std::string_view kNamed = "\\'\"abfnrtv", kMeant = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t named = kNamed.find(letter); named != kNamed.npos) {
      out += kMeant[named];
      i += 2;
    } else if (letter == '\n') {
      i += 2;
    } else if (letter == 'N') {
      why = "expected \\u escapes in a string, got the escape \\N";
      return {};
    } else if (letter == 'x' || letter == 'u' || letter == 'U' || (letter >= '0' && letter <= '7')) {
      const size_t width = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      size_t at = i + (letter >= '0' && letter <= '7' ? 1 : 2);
      const auto c = at == i + 1 ? digits(text, at, 1, 3, 8) : digits(text, at, width, width, 16);
      if (!c || *c > 0x10FFFF || (*c >= 0xD800 && *c < 0xE000)) {
        why = fmt::format("expected a valid character code after \\{} in a string, got something else", letter);
        return {};
      }
      append_utf8(out, *c);
      i = at;
    } else if (static_cast<u8>(letter) >= 0x80) {
      // Before Jinja resolves escapes, it replaces non-ASCII characters by escapes. So for a
      // backslash before such a character, the result is the escape's text, not the character.
      const auto c = static_cast<u32>(code_point_at(text, i + 1));
      out += c < 0x100 ? fmt::format("\\x{:02x}", c) : c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
      i += 1 + code_point_bytes(text, i + 1);
    } else {
      out += '\\';
      ++i;
    }
  }
  return out;
}

}  // namespace spillway::data::chat
