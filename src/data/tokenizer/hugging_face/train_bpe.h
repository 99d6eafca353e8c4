// Trains a byte-level BPE (Sennrich, Haddow, Birch 2016; bytes as in GPT-2). Training is deterministic:
// a set of texts in any order gives one result. Of pairs that occur equally often, the one with the
// lower ids is merged first. Hugging Face's trainer has this rule too, so it gives equal merges.
#pragma once
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/types.h"
#include "data/tokenizer/byte_level.h"

namespace spillway::data {

struct BpeTraining {
  // The number of tokens wanted, including the special tokens and the 256
  // bytes. The result has fewer tokens if no pair occurs twice any more.
  i64 vocabulary = 0;
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // tokens with the ids from 0 on; the first one marks the end of a text
  std::string pattern{kGpt2Pattern};                            // the expression that cuts texts into words; no token spans two words
  i64 memory_bytes = std::numeric_limits<i64>::max();           // the memory limit for the distinct words
};

/// The contents of the two files of a tokenizer. Each member is named after its file.
struct TrainedTokenizer {
  std::string tokenizer_json, tokenizer_config_json;
  i64 vocabulary = 0;
};

/// Trains a tokenizer. `next` either stores the next text and returns true, or returns false after the last text. A word never spans two
/// texts. Broken UTF-8 is read as U+FFFD. Each distinct word takes about 128 bytes of memory, plus 32 for each of its bytes. Throws
/// Error(usage) in these cases: the vocabulary has no room for the bytes and special tokens, or exceeds 2^24; special tokens are empty, not
/// UTF-8 or repeated; or the pattern is invalid. Throws Error(refused) if the words would take more than `memory_bytes`.
TrainedTokenizer train_byte_level_bpe(const std::function<bool(std::string& text)>& next, const BpeTraining& training);

/// Returns the files of a tokenizer whose ids 0 to 255 are the bytes of the text, as ByteTokenizer's are, for other programs to read. It
/// has no special tokens.
TrainedTokenizer byte_tokenizer_files();

}  // namespace spillway::data
