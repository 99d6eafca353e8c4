// The lines of a text file from its last to its first, for files that grow for months and of which only the end matters. Holds one line and
// 64 KiB. One thread.
#pragma once
#include <string>

#include "base/types.h"
#include "data/file.h"

namespace spillway::app {

class LinesBackward {
 public:
  /// A line of more bytes is told by its place alone.
  static constexpr i64 kLongest = 1 << 20;

  /// `file` must outlive it, and what it held when it was opened must stay.
  explicit LinesBackward(const data::File& file) : file_(file), end_(file.size_bytes()) {}

  struct Line {
    i64 begin = 0, end = 0;  // bytes of the file, the line feed included
    bool ends = false;       // by a line feed; only the file's last line may not
    std::string text;        // without the line feed; empty where the line is longer than kLongest
  };
  /// False: there is none left. Error(io).
  bool next(Line& line);

 private:
  const data::File& file_;
  i64 end_;            // of what is left
  i64 begin_ = 0;      // of what `piece_` holds
  std::string piece_;  // some bytes of the file
};

/// The last line of a step up to `step`, of those that end.
struct LastLine {
  i64 step = 0;            // 0: there is none
  i64 begin = 0, end = 0;  // bytes of the file
  std::string text;
};
/// `step_of`: the step that a line is of, below 1 if of none.
LastLine last_line_of(const data::File& file, i64 step, i64 (*step_of)(const std::string& line));

}  // namespace spillway::app
