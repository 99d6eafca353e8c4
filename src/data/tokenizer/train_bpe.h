// Training of a byte-level BPE (Sennrich, Haddow, Birch 2016; bytes as in GPT-2). Deterministic: equal texts in any order give equal bytes.
// Of pairs that occur equally often the one of the lower ids is merged first, which is Hugging Face's rule, so that its trainer gives the
// same merges.
#pragma once
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/types.h"
#include "data/tokenizer/byte_level.h"

namespace spillway::data {

struct BpeTraining {
  i64 vocabulary = 0;  // how many tokens there shall be, special ones and the 256 bytes included; fewer if no pair occurs twice any more
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // get the ids from 0 on; the first ends texts
  std::string pattern{kGpt2Pattern};                            // cuts a text into the words within which bytes are joined
  i64 memory_bytes = std::numeric_limits<i64>::max();           // what the words that differ may take
};

/// What goes into the files of these names.
struct TrainedTokenizer {
  std::string tokenizer_json, tokenizer_config_json;
  i64 vocabulary = 0;
};

/// `next` gives one text after the other and false at the end; a word never reaches from one text into the next. Broken UTF-8 counts as
/// U+FFFD. Each word that differs from all others takes memory: about 32 bytes for each of its bytes, and 128. Errors: Error(usage) for a
/// vocabulary that has no room for the bytes and special tokens, or is over 2^24, for special tokens that are empty, not UTF-8 or twice
/// there, and for a pattern that is none; Error(refused) when the words would take more than `memory_bytes`.
TrainedTokenizer train_byte_level_bpe(const std::function<bool(std::string& text)>& next, const BpeTraining& training);

}  // namespace spillway::data
