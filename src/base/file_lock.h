// A lock on a file that its holder's death gives back: flock. Where a filesystem has none (Lustre mounted without it, some NFS), a file
// beside it, `<file>.holder`, that names host and process: a dead process of this host is told from a live one, and so is what an earlier
// life of this Slurm job left on another host; any other holder elsewhere counts as alive. It appears whole, as the second name of a file
// written before; one that names nobody (earlier programs made it empty first, and died) counts as alive for a minute, then as dead; one
// that cannot be read, as alive. One thread.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace spillway {

class FileLock {
 public:
  enum class Kind { exclusive, look };  // look: whether it is held; by flock shared until the descriptor is closed, else nothing is taken
  /// `descriptor`: of `file`, open, and open for as long as the lock is to be held. Empty: another one has it. Error(io) when the file
  /// beside cannot be made. What dead processes of this host left half made beside it goes.
  static std::optional<FileLock> take(int descriptor, const std::filesystem::path& file, Kind kind = Kind::exclusive);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  /// Removes the file beside. What flock holds goes with the descriptor.
  ~FileLock();

  /// Writes "host h, process p" into the file, which is a lock and nothing else, for those who find it held. Error(io).
  void sign(int descriptor, const std::filesystem::path& file) const;
  /// Who holds a signed lock, in these words, and whether the process is stopped, which no waiting ends. By the file beside where there is
  /// one with a living holder. Empty when nothing is known.
  static std::string holder(const std::filesystem::path& file);

  /// Why it is only a file beside, in words; empty for flock.
  const std::string& why_not_flock() const { return why_not_; }

 private:
  FileLock() = default;
  std::filesystem::path holder_;  // the file beside, when it is ours
  std::string why_not_;
};

}  // namespace spillway
