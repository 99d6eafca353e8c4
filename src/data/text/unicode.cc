#include "data/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "data/text/unicode_tables.h"

namespace spillway::data {
namespace {

// Returns the range of a sorted table that contains the code point, or null if there is none.
template <class Range>
const Range* find(std::span<const Range> ranges, char32_t code) {
  const auto found = std::ranges::lower_bound(ranges, code, {}, &Range::last);
  return found != ranges.end() && found->first <= code ? &*found : nullptr;
}

bool in(std::span<const CodeRange> ranges, char32_t code) { return find(ranges, code) != nullptr; }

// Returns true for characters that must not be passed to utf8proc: utf8proc's newer
// Unicode tables would change them, while the tokenizers' tables leave them unchanged.
bool stays_in_normal_forms(char32_t code) { return code >= 0x80 && !in(unicode_tables::normalized(), code); }

struct Freed {
  void operator()(utf8proc_uint8_t* bytes) const { std::free(bytes); }  // NOLINT: utf8proc gives memory from malloc
};

}  // namespace

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_punctuation(char32_t code) { return in(unicode_tables::punctuation(), code); }

bool is_number(char32_t code) { return code < 0x80 ? code >= '0' && code <= '9' : in(unicode_tables::numbers(), code); }

bool is_mark(char32_t code) { return code >= 0x80 && in(unicode_tables::marks(), code); }

bool is_bert_accent(char32_t code) { return code >= 0x80 && in(unicode_tables::bert_accents(), code); }

bool is_control(char32_t code) { return in(unicode_tables::controls(), code); }

bool is_word(char32_t code) { return in(unicode_tables::words(), code); }

void append_lower(std::string& text, char32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
  } else if (code == 0x130) {
    text += "i\xCC\x87";
  } else if (const LowerCase* young = find(unicode_tables::lower_case(), code); young && (code - young->first) % young->stride == 0) {
    append_code(text, static_cast<char32_t>(static_cast<i32>(code) + young->distance));
  } else {
    append_code(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

namespace {

// The size in bytes from which our own code puts a text into canonical order,
// because utf8proc takes time quadratic in the length of a run of marks.
constexpr size_t kLongRun = 256;

// Returns the text decomposed, with the marks of each run sorted by their canonical combining class.
std::string in_canonical_order(std::string_view text, bool compatible) {
  const int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> codes;
  std::array<utf8proc_int32_t, 32> parts{};
  for (size_t at = 0; at < text.size();) {
    int last_class = UTF8PROC_BOUNDCLASS_START;
    const auto code = static_cast<utf8proc_int32_t>(next_code(text, at));
    const auto count = utf8proc_decompose_char(code, parts.data(), parts.size(), static_cast<utf8proc_option_t>(options), &last_class);
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  const auto combining = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
  const auto is_mark = [&](utf8proc_int32_t code) { return combining(code) != 0; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::ranges::stable_sort(begin, end, {}, combining);
    begin = end;
  }
  std::string made;
  for (const utf8proc_int32_t code : codes) append_code(made, static_cast<char32_t>(code));
  return made;
}

std::string normal_form_of_known(std::string_view text, NormalForm form) {
  std::string ordered;
  if (text.size() >= kLongRun) text = ordered = in_canonical_order(text, form == NormalForm::nfkc || form == NormalForm::nfkd);
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(text.size()), &made, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, Freed> owned(made);
  if (bytes < 0) {
    throw Error(ErrorCode::io,
                "[tokenizer] expected to normalize " + std::to_string(text.size()) + " bytes of text, got " + utf8proc_errmsg(bytes));
  }
  return {reinterpret_cast<const char*>(made), static_cast<size_t>(bytes)};
}

}  // namespace

std::string normal_form(std::string_view text, NormalForm form) {
  std::string made;
  size_t known = 0;  // the text before this byte is normalized already
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!stays_in_normal_forms(next_code(text, at))) continue;
    if (known < begin) made += normal_form_of_known(text.substr(known, begin - known), form);
    made += text.substr(begin, at - begin);
    known = at;
  }
  if (known < text.size()) made += normal_form_of_known(text.substr(known), form);
  return made;
}

bool begins_normal_part(char32_t code) {
  if (code < 0x80 || stays_in_normal_forms(code)) return true;
  std::array<utf8proc_int32_t, 32> parts{};
  int last_class = UTF8PROC_BOUNDCLASS_START;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(), parts.size(),
                                             static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), &last_class);
  const utf8proc_int32_t first = count > 0 ? parts[0] : static_cast<utf8proc_int32_t>(code);
  const utf8proc_property_t* property = utf8proc_get_property(first);
  const bool second_of_a_pair = property->comb_index != UINT16_MAX && property->comb_index >= 0x8000;
  const bool hangul_vowel_or_tail = first >= 0x1160 && first <= 0x11FF;
  return property->combining_class == 0 && !second_of_a_pair && !hangul_vowel_or_tail;
}

namespace {

int break_class(char32_t code) { return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->boundclass; }

bool is_line_or_control(char32_t code) {
  const int kind = break_class(code);
  return kind == UTF8PROC_BOUNDCLASS_CR || kind == UTF8PROC_BOUNDCLASS_LF || kind == UTF8PROC_BOUNDCLASS_CONTROL;
}

// Returns true if utf8proc puts this character into the grapheme cluster of the character before it, whatever that character is.
bool joins_by_newer_tables(char32_t code) {
  const int kind = break_class(code);
  return kind == UTF8PROC_BOUNDCLASS_EXTEND || kind == UTF8PROC_BOUNDCLASS_SPACINGMARK || kind == UTF8PROC_BOUNDCLASS_ZWJ;
}

}  // namespace

size_t grapheme_end(std::string_view text, size_t at) {
  utf8proc_int32_t state = 0;
  char32_t last = next_code(text, at);
  while (at < text.size()) {
    size_t behind = at;
    const char32_t code = next_code(text, behind);
    const bool apart =
        utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last), static_cast<utf8proc_int32_t>(code), &state) != 0;
    const bool joins = code >= 0x80 && in(unicode_tables::joining(), code) && !is_line_or_control(last);
    if (!joins && (apart || joins_by_newer_tables(code))) break;
    last = code;
    at = behind;
  }
  return at;
}

std::string with_old_characters(std::string_view text) {
  const std::span<const StandIn> young = unicode_tables::stand_ins();
  std::string made;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0xE0) {  // characters newer than Unicode 14 have three or four bytes
      ++at;
      continue;
    }
    const size_t begin = at;
    const StandIn* const found = find(young, next_code(text, at));
    if (!found) continue;
    if (made.empty()) made = text;
    std::string old;
    append_code(old, found->old);
    made.replace(begin, at - begin, old);
  }
  return made;
}

}  // namespace spillway::data
