// Sends what is written of a large file to the disk while the rest is being made, and drops it from the page cache some MiB later. The file
// then does not push other programs' pages out of memory, and syncing it finds little to do.
#pragma once
#include <deque>
#include <mutex>

#include "data/file.h"

namespace spillway::data {

class WriteBehind {
 public:
  /// `file` must outlive this object.
  explicit WriteBehind(File& file) : file_(file) {}
  /// Tells that bytes [begin, end) were written. Neighbouring ranges are sent together. Thread-safe. Throws Error(io).
  void wrote(i64 begin, i64 end);

 private:
  struct Range {
    i64 begin = 0, end = 0;
    i64 bytes() const { return end - begin; }
  };
  File& file_;
  std::mutex mutex_;  // guards the members below
  Range collected_;   // written and not sent yet
  std::deque<Range> on_the_way_;
  i64 on_the_way_bytes_ = 0;
};

}  // namespace spillway::data
