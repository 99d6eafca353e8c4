// Starts writing the finished parts of a large file to the disk while the rest of the file is being
// produced, and drops these parts from the page cache some MiB later. So the file does not push
// other programs' pages out of memory, and syncing the file at the end finds little left to write.
#pragma once
#include <deque>
#include <mutex>

#include "data/files/file.h"

namespace spillway::data {

class WriteBehind {
 public:
  /// Begins to track the writes of `file`, which must outlive this object.
  explicit WriteBehind(File& file) : file_(file) {}
  /// Reports that bytes [begin, end) of the file were written. Neighbouring ranges are sent to the disk together. Thread-safe. Throws
  /// Error(io).
  void wrote(i64 begin, i64 end);

 private:
  struct Range {
    i64 begin = 0, end = 0;
    i64 bytes() const { return end - begin; }
  };
  File& file_;
  std::mutex mutex_;  // guards the members that follow
  Range collected_;   // a range of bytes that was written by the caller but not yet sent to the disk
  std::deque<Range> on_the_way_;
  i64 on_the_way_bytes_ = 0;
};

}  // namespace spillway::data
