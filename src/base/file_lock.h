// Defines FileLock, a lock on a file that is released when its holder dies. FileLock uses flock. On filesystems without flock (Lustre
// mounted without it, some NFS) the lock is a file `<file>.holder` next to the locked file, which names the holder's host and process. A
// holder on this host counts as dead when its process is dead. A holder on another host counts as dead only if an earlier run of the same
// Slurm job left the .holder file; otherwise it counts as alive. The .holder file appears complete in one step, as a hard link to a file
// written before. If its content names no process (earlier programs created the file empty first and may have died), the holder counts as
// alive for a minute and then as dead. If the .holder file cannot be read, the holder counts as alive. A FileLock is for use by one thread.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace spillway {

class FileLock {
 public:
  enum class Kind { exclusive, look };  // `look` only tests for a holder: it keeps a shared flock until close and makes no .holder file
  /// Tries to take the lock without waiting. `descriptor` is an open descriptor of `file` and must stay open for as long as the
  /// lock is held. Returns nothing if another process holds the lock. Throws Error(io) when the .holder file cannot be created.
  /// Where flock is missing, also removes temporary files next to the .holder file that dead processes of this host left.
  static std::optional<FileLock> take(int descriptor, const std::filesystem::path& file, Kind kind = Kind::exclusive);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  /// Removes the .holder file if this lock created one. A lock taken by flock is released when its descriptor is closed.
  ~FileLock();

  /// Writes "host h, process p" into the lock file, so that other processes that find the file locked learn who
  /// holds the lock. The file must serve as a lock only, since its content is overwritten. Throws Error(io).
  void sign(int descriptor, const std::filesystem::path& file) const;
  /// Returns the holder of a lock on which sign() was called, as "host h, process p". A remark is added
  /// if that process is stopped, because waiting would not help then. A .holder file with a living
  /// holder takes precedence over the content of `file`. Returns an empty text when nothing is known.
  static std::string holder(const std::filesystem::path& file);

  /// Returns the error that kept the lock from using flock, so that a .holder file was used instead. Empty if flock worked.
  const std::string& why_not_flock() const { return why_not_; }

 private:
  FileLock() = default;
  std::filesystem::path holder_;  // the .holder file that this object created; empty if there is none
  std::string why_not_;
};

}  // namespace spillway
