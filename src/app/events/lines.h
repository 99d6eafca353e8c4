// The lines of a text file, from its beginning to where it ended when it was opened: what a writer adds meanwhile is not seen. Holds one
// line at a time. One thread.
#pragma once
#include <filesystem>
#include <string>

#include "base/types.h"
#include "data/file.h"

namespace spillway::app {

class Lines {
 public:
  static constexpr size_t kLongest = 1 << 20;

  /// Error(data) when it cannot be opened, or is no file.
  explicit Lines(const std::filesystem::path& file);

  struct Line {
    i64 number = 0;  // from 1
    std::string text;
    bool ends = true;       // by a line feed; the last one may not
    bool too_long = false;  // more than kLongest: its text is left out
  };
  /// False: there is none left. Error(io).
  bool next(Line& line);
  void rewind();

 private:
  bool fill();

  data::File in_;
  i64 read_ = 0, number_ = 0;
  std::string buffer_;
  size_t at_ = 0;
};

}  // namespace spillway::app
