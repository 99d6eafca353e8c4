// Reads the lines of a text file from the last to the first, for files that grow for months and of which only the end matters. Holds one
// line and 64 KiB in memory. Not thread-safe.
#pragma once
#include <string>

#include "base/types.h"
#include "data/files/file.h"

namespace spillway::app {

class LinesBackward {
 public:
  /// The largest number of bytes of a line whose text is returned. Of a longer line only the position is returned.
  static constexpr i64 kLongest = 1 << 20;

  /// `file` must outlive this object, and the bytes that it has now must not change.
  explicit LinesBackward(const data::File& file) : file_(file), end_(file.size_bytes()) {}

  struct Line {
    i64 begin = 0, end = 0;  // byte offsets of the line in the file, including its line feed
    bool ends = false;       // the line ends with a line feed, which only the file's last line may lack
    std::string text;        // without the line feed; empty if the line is longer than kLongest
  };
  /// Reads the next line towards the beginning of the file. Returns false if there is none left. Throws Error(io).
  bool next(Line& line);

 private:
  const data::File& file_;
  i64 end_;            // offset in the file at which the last returned line begins; the next one ends here
  i64 begin_ = 0;      // offset in the file of the first byte of `piece_`
  std::string piece_;  // the part of the file that was read last
};

/// The result of last_line_of().
struct LastLine {
  i64 step = 0;            // step of the line; 0 if there is no such line
  i64 begin = 0, end = 0;  // byte offsets in the file
  std::string text;
};
/// Returns the last complete line whose step is from 1 to `step`. `step_of` returns the step of a line, or a number below 1 if it has none.
LastLine last_line_of(const data::File& file, i64 step, i64 (*step_of)(const std::string& line));

}  // namespace spillway::app
