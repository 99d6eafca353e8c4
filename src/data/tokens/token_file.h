// Writes a token file in llm.c's format (token_format.h)
// as a stream: a file of any number of tokens takes 64
// KiB of memory. A writer is used by one thread.
#pragma once
#include <filesystem>
#include <span>
#include <vector>

#include "data/files/beside.h"

namespace spillway::data {

class TokenFileWriter {
 public:
  /// Begins a file. Tokens are written as uint16 if `vocabulary` is at most 65536, and as uint32 otherwise.
  /// The file is written under a temporary name next to `path`. When it is complete, it is renamed to `path`
  /// and replaces an existing token file at `path`. Throws Error(usage) if `path` is a file of another kind.
  TokenFileWriter(const std::filesystem::path& path, i64 vocabulary);

  /// Appends tokens. Throws Error(data) for an id outside [0, vocabulary) and Error(io) if the disk is full.
  void write(std::span<const i32> ids);
  /// Writes the buffered tokens and the header, and moves the file to its final path, on stable storage.
  void finish();

  i64 tokens() const { return tokens_; }
  int width_bytes() const { return width_bytes_; }

 private:
  void flush();
  AtomicFile file_;
  const i64 vocabulary_;
  const int width_bytes_;
  i64 tokens_ = 0, flushed_bytes_ = 0;
  std::vector<std::byte> pending_;
};

}  // namespace spillway::data
