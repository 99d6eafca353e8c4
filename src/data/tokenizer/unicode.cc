#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "data/tokenizer/utf8.h"

namespace spillway::data {
namespace {

utf8proc_category_t category_of(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

struct Freed {
  void operator()(utf8proc_uint8_t* bytes) const { std::free(bytes); }  // NOLINT: utf8proc gives memory from malloc
};

}  // namespace

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  }
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_number(char32_t code) {
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_mark(char32_t code) {
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code) { return category_of(code) == UTF8PROC_CATEGORY_MN; }

bool is_control(char32_t code) {
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_CC && category <= UTF8PROC_CATEGORY_CO;
}

bool is_word(char32_t code) {
  // Alphabetic symbols: circled, squared letters.
  if ((code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
      (code >= 0x1F170 && code <= 0x1F189) || code == 0x200C || code == 0x200D) {
    return true;
  }
  const auto category = category_of(code);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC;
}

void append_lower(std::string& text, char32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
  } else if (code == 0x130) {
    text += "i\xCC\x87";
  } else {
    append_code(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

std::string normal_form(std::string_view text, NormalForm form) {
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

bool begins_normal_part(char32_t code) {
  if (code < 0x80) return true;
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

size_t grapheme_end(std::string_view text, size_t at) {
  utf8proc_int32_t state = 0;
  auto last = static_cast<utf8proc_int32_t>(next_code(text, at));
  while (at < text.size()) {
    size_t behind = at;
    const auto code = static_cast<utf8proc_int32_t>(next_code(text, behind));
    if (utf8proc_grapheme_break_stateful(last, code, &state)) break;
    last = code;
    at = behind;
  }
  return at;
}

}  // namespace spillway::data
