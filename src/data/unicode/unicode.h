// Properties of code points and the normalization forms, as the parts of Hugging Face's tokenizers have them. Those have tables of several
// ages, from Unicode 8 to 16: what they say is in unicode_tables.h; what all ages agree on comes from utf8proc. Pure functions.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::data {

bool is_white_space(char32_t code);  // the property White_Space
bool is_punctuation(char32_t code);  // ASCII punctuation and symbols, and the categories P*
bool is_number(char32_t code);       // N*
bool is_mark(char32_t code);         // M*, as StripAccents knows them
bool is_bert_accent(char32_t code);  // Mn, as BertNormalizer knows them
bool is_control(char32_t code);      // Cc, Cf, Co
/// A word's character as UTS 18 has it: Alphabetic, M*, Nd, Pc and the joiners.
bool is_word(char32_t code);

/// The full lower-case form, which does not look at neighbours: only U+0130 has two characters.
void append_lower(std::string& text, char32_t code);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// Valid UTF-8 in, the normal form out.
std::string normal_form(std::string_view text, NormalForm form);
/// Whether a text may be cut before this character and both parts be normalized apart.
bool begins_normal_part(char32_t code);

/// Where the extended grapheme cluster that begins at `at` ends.
size_t grapheme_end(std::string_view text, size_t at);

/// The text with an old character of the same category and length in the place of each that is younger than Unicode 14, for matching
/// classes of characters with older tables. Empty where the text has no such character.
std::string with_old_characters(std::string_view text);

}  // namespace spillway::data
