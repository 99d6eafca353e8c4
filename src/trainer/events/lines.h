// Lines reads the lines of a text file, from its beginning to the end that the file had when it was opened.
// Lines that are appended later are not read. Only one line is in memory at a time. Not thread-safe.
#pragma once
#include <filesystem>
#include <string>

#include "base/types.h"
#include "data/files/file.h"

namespace spillway::trainer {

class Lines {
 public:
  static constexpr size_t kLongest = 1 << 20;

  /// Opens `file`. Throws Error(data) if `file` cannot be opened or is not a regular file.
  explicit Lines(const std::filesystem::path& file);

  struct Line {
    i64 number = 0;  // number of the line, counted from 1
    std::string text;
    bool ends = true;       // true if the line ends with a line feed, which the last line may lack
    bool too_long = false;  // true if the line has more than kLongest bytes; `text` is then empty
  };
  /// Reads the next line. Returns false if there are no more lines. Throws Error(io) if the file cannot be read.
  bool next(Line& line);
  void rewind();

 private:
  bool fill();

  data::File in_;
  i64 read_ = 0, number_ = 0;
  std::string buffer_;
  size_t at_ = 0;
};

}  // namespace spillway::trainer
