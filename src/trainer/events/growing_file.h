// GrowingFile is a file that is appended to piece by piece and survives a full disk. A piece that cannot be written waits in
// memory, and the next append tries to write the waiting pieces again, in order. The file always holds a prefix of what was
// appended: a piece of which only a part was written is written again from its beginning. Not thread-safe, except for sync().
#pragma once
#include <limits>
#include <string>
#include <string_view>

#include "base/types.h"
#include "data/files/file.h"

namespace spillway::trainer {

class GrowingFile {
 public:
  /// Appends to `file` after its first `bytes` bytes. At most `most_waiting` bytes wait
  /// in memory. A piece that would exceed this limit is dropped, and lost() counts it.
  GrowingFile(data::File file, i64 bytes, size_t most_waiting = std::numeric_limits<size_t>::max());
  /// Tries one last time to write the waiting pieces.
  ~GrowingFile();
  GrowingFile(GrowingFile&&) = default;
  GrowingFile& operator=(GrowingFile&&) = delete;

  void append(std::string_view piece);
  bool waits() const { return !waiting_.empty(); }
  /// Returns the error of the last write. It is meaningful while waits() is true.
  const std::string& why() const { return why_; }
  i64 lost() const { return lost_; }
  std::string name() const { return file_.path().filename().string(); }
  /// Makes everything that was written durable, that is, safe from a power loss. Pieces that wait in memory are not included. Throws
  /// Error(io).
  void sync() { file_.sync(); }

 private:
  void write();

  data::File file_;
  i64 bytes_;     // size of the file up to the last piece that was written completely
  i64 lost_ = 0;  // number of pieces that were dropped
  const size_t most_waiting_;
  std::string waiting_, why_;
};

}  // namespace spillway::trainer
