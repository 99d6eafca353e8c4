#include "data/text/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

namespace spillway::data::chat {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

std::string_view strip_where(std::string_view text, int sides, auto&& drops) {
  size_t begin = 0, end = text.size();
  if (sides <= 0) {
    while (begin < end && drops(code_point_at(text, begin))) begin += code_point_bytes(text, begin);
  }
  if (sides >= 0) {
    while (end > begin) {
      const size_t last = code_point_before(text, end);
      if (!drops(code_point_at(text, last))) break;
      end = last;
    }
  }
  return text.substr(begin, end - begin);
}

}  // namespace

size_t code_point_bytes(std::string_view text, size_t at) {
  const u8 first = static_cast<u8>(text[at]);
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

char32_t code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<u8>(text[at + i])); };
  switch (code_point_bytes(text, at)) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

namespace {

bool begins_code_point(char c) { return (static_cast<u8>(c) & 0xC0) != 0x80; }

// Returns how many code points begin within the eight bytes of `text` that start at byte `at`.
size_t begins_in_word(std::string_view text, size_t at) {
  u64 word = 0;
  std::memcpy(&word, text.data() + at, sizeof word);
  return sizeof word - static_cast<size_t>(std::popcount(word >> 7 & ~(word >> 6) & 0x0101010101010101));
}

}  // namespace

size_t code_point_count(std::string_view text) {
  size_t count = 0, at = 0;
  for (; at + 8 <= text.size(); at += 8) count += begins_in_word(text, at);
  for (; at < text.size(); ++at) count += begins_code_point(text[at]) ? 1 : 0;
  return count;
}

size_t code_point_offset(std::string_view text, size_t nth) {
  size_t at = 0, begun = 0;
  for (; at + 8 <= text.size(); at += 8) {
    const size_t more = begins_in_word(text, at);
    if (begun + more > nth) break;
    begun += more;
  }
  for (; at < text.size(); ++at) {
    if (begins_code_point(text[at]) && begun++ == nth) return at;
  }
  return text.size();
}

size_t code_point_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<u8>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

size_t encode_utf8(char32_t c, char (&bytes)[4]) {
  return static_cast<size_t>(utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), reinterpret_cast<utf8proc_uint8_t*>(bytes)));
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  const auto kind = category(c);
  return c == 0x85 || kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  // Python counts superscript, subscript and circled digits as digits, in addition to decimal digits.
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) || (c >= 0x2488 && c <= 0x2490);
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_printable(char32_t c) {
  const auto kind = category(c);
  const bool hidden = kind == UTF8PROC_CATEGORY_CN || (kind >= UTF8PROC_CATEGORY_ZS && kind <= UTF8PROC_CATEGORY_CO);
  return c == ' ' || !hidden;
}

bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return is_alpha(c) || is_numeric(c);
}

std::string_view strip(std::string_view text, int sides) { return strip_where(text, sides, is_space); }

std::string_view strip(std::string_view text, std::string_view chars, int sides) {
  if (chars.size() <= 8) {  // for so few characters a linear search is faster than building a set
    const auto dropped = CodePoints(chars);
    return strip_where(text, sides, [&](char32_t c) { return std::ranges::find(dropped, c) != dropped.end(); });
  }
  const auto all = CodePoints(chars);
  const std::unordered_set<char32_t> dropped(all.begin(), all.end());
  return strip_where(text, sides, [&](char32_t c) { return dropped.contains(c); });
}

}  // namespace spillway::data::chat
