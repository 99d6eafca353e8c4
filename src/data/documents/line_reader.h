// Lines of a file as they are asked for: plain, or packed by gzip or zstd, which the file's first bytes tell. A line ends with "\n" alone,
// so that U+2028 and others are part of it; the last one need not. One thread.
#pragma once
#include <memory>
#include <string>

#include "data/file.h"

namespace spillway::data {

/// Of text, and of a row: rows beyond it would take gigabytes while they become tokens.
constexpr i64 kMostLineBytes = 256 * kMiB, kMostRowBytes = 64 * kMiB;

class LineReader {
 public:
  /// Error(data): the file cannot be opened.
  explicit LineReader(const std::filesystem::path& path, i64 most_line_bytes = kMostLineBytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its end; false after the last. Error(data): a line of more bytes than are allowed, or packed data that are
  /// damaged or cut short, with the number of the line.
  bool next(std::string& line);
  /// Whether "\n" stood behind the line given last.
  bool ended_with_line_end() const { return ended_with_line_end_; }
  /// Of the line given last, from 1.
  i64 number() const { return number_; }
  /// Bytes of the file that were read, for a progress line; and all of them.
  i64 bytes_read() const;
  i64 file_bytes() const;

 private:
  class Unpacker;
  std::unique_ptr<Unpacker> unpacker_;
  const i64 most_line_bytes_;
  std::string buffer_;
  size_t at_ = 0;
  i64 number_ = 0;
  bool at_end_ = false, ended_with_line_end_ = false;
};

}  // namespace spillway::data
