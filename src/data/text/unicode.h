// Unicode properties of code points and the normalization forms, as Hugging Face's tokenizers library defines
// them. Different parts of that library use tables of different Unicode versions, from 8 to 16. Where these
// versions differ, the data comes from unicode_tables.h; where all agree, it comes from utf8proc. Pure functions.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::data {

bool is_white_space(char32_t code);  // returns whether the property White_Space is set
bool is_punctuation(char32_t code);  // returns whether the character is ASCII punctuation, an ASCII symbol or of a category P*
bool is_number(char32_t code);       // returns whether the category is one of N*
bool is_mark(char32_t code);         // returns whether the category is one of M*, in the Unicode version that StripAccents uses
bool is_bert_accent(char32_t code);  // returns whether the category is Mn, in the Unicode version that BertNormalizer uses
bool is_control(char32_t code);      // returns whether the category is Cc, Cf or Co
/// Returns true for a word character as UTS 18 defines it: Alphabetic, M*, Nd, Pc and the joiners.
bool is_word(char32_t code);

/// Appends the full lower-case form of a character. The characters around it do
/// not matter, unlike in some languages. Only U+0130 becomes two characters.
void append_lower(std::string& text, char32_t code);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// Returns the normal form of valid UTF-8.
std::string normal_form(std::string_view text, NormalForm form);
/// Returns true if a text may be cut before this character: normalizing
/// the two parts separately gives what normalizing the whole text gives.
bool begins_normal_part(char32_t code);

/// Returns the end of the extended grapheme cluster that begins at byte `at`.
size_t grapheme_end(std::string_view text, size_t at);

/// Replaces each character that is newer than Unicode 14 by an older one of the same category and byte length, and returns the new text.
/// Libraries with older tables then match it in the same character classes. Returns an empty string if the text has no such character.
std::string with_old_characters(std::string_view text);

}  // namespace spillway::data
