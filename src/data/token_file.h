// Writes a token file in llm.c's format (token_format.h) as a stream: any number of tokens, 64 KiB of memory. One writer, one thread.
#pragma once
#include <filesystem>
#include <span>
#include <vector>

#include "data/beside.h"

namespace spillway::data {

class TokenFileWriter {
 public:
  /// uint16 tokens where `vocabulary` allows it (up to 65536), else uint32. It is written beside `path` and replaces an older token file
  /// there when it is whole. Error(usage): another kind of file is there.
  TokenFileWriter(const std::filesystem::path& path, i64 vocabulary);

  /// Throws Error(data) on an id outside [0, vocabulary), Error(io) when the disk is full.
  void write(std::span<const i32> ids);
  /// Writes what is left and the header, and puts the file in place, on stable storage.
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
