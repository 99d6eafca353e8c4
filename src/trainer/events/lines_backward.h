// LinesBackward reads the lines of a text file from the last to the first, for files that grow for months
// and of which only the end matters. One line and 64 KiB are in memory at a time. Not thread-safe.
#pragma once
#include <string>

#include "base/types.h"
#include "data/files/file.h"

namespace spillway::trainer {

class LinesBackward {
 public:
  /// Lines of more than kLongest bytes are returned without their text. Of such a line only the position is returned.
  static constexpr i64 kLongest = 1 << 20;

  /// Begins at the end of `file`. `file` must outlive this object, and the bytes that the file has now must not change.
  explicit LinesBackward(const data::File& file) : file_(file), end_(file.size_bytes()) {}

  struct Line {
    i64 begin = 0, end = 0;  // byte offsets of the line in the file, including its line feed
    bool ends = false;       // true if the line ends with a line feed, which only the last line may lack
    std::string text;        // the line without its line feed; empty if it is longer than kLongest
  };
  /// Reads the next line towards the beginning of the file. Returns false if there are no more lines. Throws Error(io) if the file cannot
  /// be read.
  bool next(Line& line);

 private:
  const data::File& file_;
  i64 end_;            // offset at which the last returned line begins and the next one ends
  i64 begin_ = 0;      // offset in the file of the first byte of `piece_`
  std::string piece_;  // the part of the file that was read last
};

/// LastLine is the result of last_line_of().
struct LastLine {
  i64 step = 0;            // step of the line; 0 if no line was found
  i64 begin = 0, end = 0;  // byte offsets in the file
  std::string text;
};
/// Returns the last complete line whose step is between 1 and `step`. `step_of` returns the step of a line, or a number below 1 if the
/// line has no step.
LastLine last_line_of(const data::File& file, i64 step, i64 (*step_of)(const std::string& line));

}  // namespace spillway::trainer
