// LineReader reads a file line by line. The file may be plain text or compressed with gzip or zstd; its first bytes tell which. Only "\n"
// ends a line, so U+2028 and similar separators are part of the line. The last line need not end with "\n". An object is used by one
// thread.
#pragma once
#include <memory>
#include <string>

#include "data/files/file.h"

namespace spillway::data {

/// The limits on the bytes of a line of plain text and of a row of JSON
/// Lines. A larger row would take gigabytes of memory while it is tokenized.
constexpr i64 kMostLineBytes = 256 * kMiB, kMostRowBytes = 64 * kMiB;

class LineReader {
 public:
  /// Opens the file. Throws Error(data) if it cannot be opened.
  explicit LineReader(const std::filesystem::path& path, i64 most_line_bytes = kMostLineBytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Reads the next line, without its end, into `line`. Returns false after the last line. Throws Error(data) with the line number if the
  /// line is longer than allowed, or if compressed data are damaged or cut short.
  bool next(std::string& line);
  /// Returns true if a "\n" followed the line that next() returned last.
  bool ended_with_line_end() const { return ended_with_line_end_; }
  /// Returns the number of the line that next() returned last, counted from 1.
  i64 number() const { return number_; }
  /// bytes_read() returns how many bytes of the file were read so far, for a progress display; file_bytes() returns the file's size.
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
