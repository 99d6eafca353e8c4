// A lock on a file that is released when its holder dies. It uses flock. On filesystems without flock (Lustre mounted without it, some NFS)
// it creates a file `<file>.holder` next to the locked file that names the holder's host and process. If the holder is a process of this
// host, the lock checks whether it lives. A holder on another host counts as dead only if an earlier run of the same Slurm job left the
// .holder file; otherwise it counts as alive. The .holder file appears complete in one step, as a hard link to a file written before. If
// its content names no process (earlier programs created it empty first and may have died), its holder counts as alive for a minute and
// then as dead. If the .holder file cannot be read, its holder counts as alive. A lock is for use by one thread.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace spillway {

class FileLock {
 public:
  enum class Kind { exclusive, look };  // `look` only tests for a holder: it keeps a shared flock until close and makes no .holder file
  /// Tries to take the lock without waiting. `descriptor` is an open descriptor of `file` and must stay open for as long as the lock is
  /// held. Returns nothing if somebody else holds the lock. Throws Error(io) when the .holder file cannot be created. When it creates a
  /// .holder file, it also removes temporary files that dead processes of this host left next to it.
  static std::optional<FileLock> take(int descriptor, const std::filesystem::path& file, Kind kind = Kind::exclusive);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  /// Removes the .holder file if this lock created one. A lock taken by flock is released when its descriptor is closed.
  ~FileLock();

  /// Writes "host h, process p" into the lock file, so that others who find the file locked learn who holds it. The file must serve as a
  /// lock only, since its content is overwritten. Throws Error(io).
  void sign(int descriptor, const std::filesystem::path& file) const;
  /// Returns the holder of a signed lock as "host h, process p", and adds a remark if that process is stopped, because waiting would not
  /// help then. A .holder file with a living holder takes precedence over the content of `file`. Returns an empty text when nothing is
  /// known.
  static std::string holder(const std::filesystem::path& file);

  /// Returns the error because of which flock could not be used and a .holder file was used instead; empty if flock worked.
  const std::string& why_not_flock() const { return why_not_; }

 private:
  FileLock() = default;
  std::filesystem::path holder_;  // the .holder file, if this object created it
  std::string why_not_;
};

}  // namespace spillway
