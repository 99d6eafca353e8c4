// Beside creates a file or folder atomically: it is written next to its final path as `<final>.partial-<pid>` and renamed when it is
// complete. A crash before the rename leaves what was at the final path. If another program creates a file at the final path in the
// meantime, that file stays, and our finished file is kept under a name that the error message gives. The writer holds a lock (flock) on
// the partial file while it works. The lock tells the work of a live process from files that a dead process left. A new writer for the same
// final path removes files that a dead process left. An object is used by one thread. Throws Error(io) with path and errno, and
// Error(usage) where noted.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "base/descriptor.h"
#include "data/files/file.h"

namespace spillway::data {

/// Selects what may already exist at the final path, and what happens to it.
enum class Existing {
  refuse,   // nothing may exist at the final path; otherwise throws Error(usage)
  replace,  // what existed at the final path at the start is replaced
  // Whatever exists at the final path is replaced. If several processes write one file at once, the last
  // one wins. This value is meant for files that only this program writes; it is not allowed for folders.
  overwrite,
};

class Beside {
 public:
  enum class Kind { file, folder };

  /// Creates the empty partial file or folder. For a folder, missing parent folders are created too.
  Beside(const std::filesystem::path& final_path, Kind kind, Existing existing);
  /// Removes the partial file or folder unless put_in_place() was reached.
  ~Beside();
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  const std::filesystem::path& path() const { return beside_; }
  const std::filesystem::path& final_path() const { return final_; }

  /// Renames the partial file or folder to the final path. The caller must have synced the contents to stable storage; on return the new
  /// name is on stable storage too. Throws Error(io) if another program created or replaced something at the final path after this object
  /// was constructed.
  void put_in_place();

  /// Removes all partial files and folders that dead processes left in `parent`, and returns their
  /// paths. The function ignores the flocks and so would remove a live process's files too. Call it only
  /// while this process holds the run folder's lock, because then no other process writes in the folder.
  static std::vector<std::filesystem::path> remove_left(const std::filesystem::path& parent);

 private:
  /// Identifies a file or folder by device and inode number, whatever its contents.
  struct Identity {
    dev_t device;
    ino_t number;
    bool operator==(const Identity&) const = default;
  };
  static std::optional<Identity> identity_of(const std::filesystem::path& path);
  void make();
  bool take_free_place();
  void exchange();
  [[noreturn]] void keep_for_the_user();

  const std::filesystem::path final_;
  const Kind kind_;
  const Existing existing_;
  Descriptor old_;  // what existed at the final path at the start, opened with O_PATH; empty if nothing did
  std::optional<Identity> before_;
  std::filesystem::path beside_;
  int lock_ = -1;  // file descriptor whose flock (file lock) this object holds
  bool done_ = false;
};

/// A new file that is written under a temporary name and renamed by commit().
class AtomicFile {
 public:
  AtomicFile(const std::filesystem::path& final_path, Existing existing);
  File& file() { return file_; }
  const std::filesystem::path& final_path() const { return beside_.final_path(); }
  /// Fsyncs and closes the new file and moves it to its final path.
  void commit();

 private:
  Beside beside_;
  File file_;
};

}  // namespace spillway::data
