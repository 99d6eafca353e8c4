// A file that grows by whole pieces on days when the disk is full: what it does not take waits in memory, in its order, for the next piece
// that it takes. What lies on the disk is always the beginning of what was appended: a piece of which only a part is there is written again
// from its own beginning, so that nothing ever follows half of one. One thread, but for sync().
#pragma once
#include <limits>
#include <string>
#include <string_view>

#include "base/types.h"
#include "data/file.h"

namespace spillway::app {

class GrowingFile {
 public:
  /// Of `file` the first `bytes` are whole. `most_waiting`: bytes; beyond them a piece that would wait is lost, and counted.
  GrowingFile(data::File file, i64 bytes, size_t most_waiting = std::numeric_limits<size_t>::max());
  /// What waits is tried once more.
  ~GrowingFile();
  GrowingFile(GrowingFile&&) = default;
  GrowingFile& operator=(GrowingFile&&) = delete;

  void append(std::string_view piece);
  bool waits() const { return !waiting_.empty(); }
  /// While it waits: why.
  const std::string& why() const { return why_; }
  i64 lost() const { return lost_; }
  std::string name() const { return file_.path().filename().string(); }
  /// What does not wait is on stable storage. Error(io).
  void sync() { file_.sync(); }

 private:
  void write();

  data::File file_;
  i64 bytes_;     // whole pieces
  i64 lost_ = 0;  // pieces
  const size_t most_waiting_;
  std::string waiting_, why_;
};

}  // namespace spillway::app
