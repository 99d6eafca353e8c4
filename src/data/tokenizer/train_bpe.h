// Trains a byte-level BPE (Sennrich, Haddow, Birch 2016; bytes as in GPT-2). Deterministic: equal texts in any order give equal bytes. Of
// pairs that occur equally often the one with the lower ids is merged first. This is Hugging Face's rule, so its trainer gives the same
// merges.
#pragma once
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/types.h"
#include "data/tokenizer/byte_level.h"

namespace spillway::data {

struct BpeTraining {
  // Wanted number of tokens, including the special ones and the 256 bytes. There are fewer if no pair occurs twice any more.
  i64 vocabulary = 0;
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // these get the ids from 0 on; the first one marks the end of a text
  std::string pattern{kGpt2Pattern};                            // splits text into words; tokens do not span words
  i64 memory_bytes = std::numeric_limits<i64>::max();           // memory limit for the distinct words
};

/// The contents of the files of these names.
struct TrainedTokenizer {
  std::string tokenizer_json, tokenizer_config_json;
  i64 vocabulary = 0;
};

/// Trains a tokenizer. `next` stores the next text and returns true, or returns false at the end; a word never spans two texts. Broken
/// UTF-8 counts as U+FFFD. Each distinct word takes about 128 bytes of memory, plus 32 for each of its bytes. Throws Error(usage) if the
/// vocabulary has no room for the bytes and special tokens or exceeds 2^24, if special tokens are empty, not UTF-8 or repeated, or if the
/// pattern is invalid. Throws Error(refused) if the words would take more than `memory_bytes`.
TrainedTokenizer train_byte_level_bpe(const std::function<bool(std::string& text)>& next, const BpeTraining& training);

}  // namespace spillway::data
