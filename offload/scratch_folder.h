// A run's own folder `spillway-<run id>` on a scratch path (scratch_path.h), with an owner file that is locked (flock) while its owner
// lives. So two runs on one path cannot collide, and the folders of dead runs (kill -9, power loss) can be told from live ones and
// reclaimed. The kernel drops the lock with the process: nothing has to be cleaned for that. Thread-safe: a ScratchFolder belongs to one
// thread, the functions keep no state.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::offload {

class ScratchFolder {
 public:
  /// Creates (mode 0700) or, when its owner is dead, takes over `scratch`/spillway-<run_id>. One owner per folder: processes that share a
  /// path add their rank to the id. Errors: Error(usage) for an id with other characters than letters, digits, `.`, `_`, `-`, or a
  /// folder whose owner is alive (named: host, pid, run, time); Error(io) otherwise.
  ScratchFolder(const std::filesystem::path& scratch, const std::string& run_id);
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  /// Removes the folder and all in it, unless told to keep it.
  ~ScratchFolder();

  /// From now on the destructor leaves everything in place, as a death would: for a run that ended by an error and may be restarted.
  void keep() { keep_ = true; }

  const std::filesystem::path& path() const { return path_; }
  /// It was there: a dead run of this id left it, with its files.
  bool taken_over() const { return taken_over_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
  bool taken_over_ = false, keep_ = false;
};

struct Orphan {
  std::string name;   // of the folder, without the path
  std::string owner;  // one line, as the dead owner wrote it; empty when it died before
  i64 bytes = 0;      // on the drive
  i64 age_s = 0;      // since its owner started
};

/// Folders of dead runs on `scratch`, by name; those this user may not read are left out. A missing path has none.
std::vector<Orphan> list_orphans(const std::filesystem::path& scratch);

/// Removes one. Errors: Error(usage) when it is not a run's folder or its owner is alive; Error(io) when it cannot be removed.
void remove_orphan(const std::filesystem::path& scratch, const std::string& name);

}  // namespace spillway::offload
