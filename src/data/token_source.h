// Tokens of files of any kind that is read.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::data {

/// Tokens by position, read from the file as they are asked for: any length, no copy in RAM. Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual const std::string& name() const = 0;
  virtual i64 tokens() const = 0;
  /// Tokens [begin, begin + out.size()) as ids.
  virtual void read(i64 begin, std::span<i32> out) const = 0;
};

/// For files whose tokenizer is not known: every id that a token file can hold is below it.
constexpr i64 kAnyVocabulary = i64{1} << 31;

/// Opens `--data` paths: `.txt` (or a folder of them in byte order of names) through the byte tokenizer, token files `.bin` (llm.c's
/// header, else nanoGPT's headerless uint16; Megatron where a .idx lies beside it). Ids at or above `vocabulary` are Error(data) with file
/// and offset, found before step 1.
std::vector<std::unique_ptr<TokenSource>> open_token_sources(const std::vector<std::string>& paths, i64 vocabulary);

}  // namespace spillway::data
