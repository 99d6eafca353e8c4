// TokenSource is the interface to a sequence of token ids, whatever kind of file they come from.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::data {

/// Token ids by position, read from the file on demand: any length, without a copy in RAM. Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual const std::string& name() const = 0;
  virtual i64 tokens() const = 0;
  /// Copies the ids of tokens [begin, begin + out.size()).
  virtual void read(i64 begin, std::span<i32> out) const = 0;
};

/// Vocabulary size to pass when the tokenizer of a file is not known: every id that a token file can hold is below it.
constexpr i64 kAnyVocabulary = i64{1} << 31;

/// Opens `--data` paths. A `.txt` file, or a folder of them in byte order of names, goes through the byte tokenizer. A `.bin` token file is
/// llm.c's if it has that header, Megatron's if a .idx lies next to it, else nanoGPT's headerless uint16. Ids at or above `vocabulary`
/// throw Error(data) with file and offset; they are found here, before the first step.
std::vector<std::unique_ptr<TokenSource>> open_token_sources(const std::vector<std::string>& paths, i64 vocabulary);

}  // namespace spillway::data
