// A lock on a file that its holder's death gives back: flock. Where a filesystem has none (Lustre mounted without it, some NFS), a file
// beside it, `<file>.holder`, that names host and process: a dead process of this host is told from a live one, and so is what an earlier
// life of this Slurm job left on another host; any other holder elsewhere counts as alive. One thread.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace spillway {

class FileLock {
 public:
  enum class Kind { exclusive, look };  // look: whether it is held; nothing is taken
  /// `descriptor`: of `file`, open, and open for as long as the lock is to be held. Empty: another one has it. Error(io) when the file
  /// beside cannot be made.
  static std::optional<FileLock> take(int descriptor, const std::filesystem::path& file, Kind kind = Kind::exclusive);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  /// Removes the file beside. What flock holds goes with the descriptor.
  ~FileLock();

  /// Why it is only a file beside, in words; empty for flock.
  const std::string& why_not_flock() const { return why_not_; }

 private:
  FileLock() = default;
  std::filesystem::path holder_;  // the file beside, when it is ours
  std::string why_not_;
};

}  // namespace spillway
