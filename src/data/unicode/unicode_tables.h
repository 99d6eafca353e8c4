// What Hugging Face's tokenizers says of every code point, where its tables are of other ages than utf8proc's and PCRE2's. Written by
// tests/peers/unicode_tables.py. Ranges are inclusive, sorted and apart from each other.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway::data {

struct CodeRange {
  char32_t first, last;
};

/// Every `stride`-th from `first` to `last` has a lower case that is `distance` from it.
struct LowerCase {
  char32_t first, last;
  i32 distance;
  char32_t stride;
};

/// Each from `first` to `last` has the general category and the bytes in UTF-8 of `old`, and is of the script Han if that is.
struct StandIn {
  char32_t first, last, old;
};

namespace unicode_tables {

std::span<const CodeRange> marks();         // what StripAccents drops
std::span<const CodeRange> bert_accents();  // what BertNormalizer drops as accents
std::span<const CodeRange> controls();      // what BertNormalizer drops as control characters
std::span<const CodeRange> punctuation();   // what Punctuation and BertPreTokenizer cut out
std::span<const CodeRange> numbers();       // what Digits cuts out
std::span<const CodeRange> words();         // what Whitespace takes for part of a word
std::span<const CodeRange> normalized();    // what decomposes, composes or is reordered in any normal form
std::span<const CodeRange> joining();       // what belongs to the grapheme cluster of the character before it
std::span<const LowerCase> lower_case();    // letters whose lower case is younger than Unicode 14
std::span<const StandIn> stand_ins();       // characters whose category is younger than Unicode 14

}  // namespace unicode_tables
}  // namespace spillway::data
