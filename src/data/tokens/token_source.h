// TokenSource is the interface to a sequence of token ids, whatever kind of file the ids come from.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::data {

/// A sequence of token ids by position. The ids are read from the file on demand, so
/// the sequence may be of any length and no copy of it is kept in RAM. Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual const std::string& name() const = 0;
  virtual i64 tokens() const = 0;
  /// Copies the ids of tokens [begin, begin + out.size()) to `out`.
  virtual void read(i64 begin, std::span<i32> out) const = 0;
};

/// The vocabulary size to pass to open_token_sources() when the tokenizer is not known: every id that a token file can hold is below this
/// size.
constexpr i64 kAnyVocabulary = i64{1} << 31;

/// Opens `--data` paths. A `.txt` file, or a folder of them in byte order of names, goes through the byte
/// tokenizer. A `.bin` token file is in llm.c's format if it has llm.c's header, in Megatron's if a .idx file
/// lies next to it, and otherwise in nanoGPT's headerless uint16. Throws Error(data) with file and offset if
/// an id is `vocabulary` or greater. The function reads all ids for this check, before the first step.
std::vector<std::unique_ptr<TokenSource>> open_token_sources(const std::vector<std::string>& paths, i64 vocabulary);

}  // namespace spillway::data
