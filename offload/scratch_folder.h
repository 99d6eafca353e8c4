// A run's own folder `spillway-<run id>` on a scratch path (scratch_path.h), with an owner file that is locked (FileLock) while its owner
// lives. So two runs on one path cannot collide, and the folders of dead runs (kill -9, power loss) can be told from live ones and
// reclaimed; a folder without such a file is no run's, whatever its name. The kernel drops the lock with the process: nothing has to be
// cleaned for that. Thread-safe: a ScratchFolder belongs to one thread, the functions keep no state.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "base/types.h"

namespace spillway::offload {

class ScratchFolder {
 public:
  /// Creates (mode 0700) or, when its owner is dead, takes over `scratch/spillway-RUN_ID`. One owner per folder: processes that share a
  /// path add their rank to the id. Errors: Error(usage) for an id with other characters than letters, digits, `.`, `_`, `-`, for a
  /// folder whose owner is alive (named: run, host, pid, time), and for one that no run of this id and user made; Error(io) otherwise.
  ScratchFolder(const std::filesystem::path& scratch, const std::string& run_id);
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  /// Removes the folder and all in it, if it was made here or was given up; unless it is to be kept.
  ~ScratchFolder();

  /// From now on the destructor leaves everything in place, as a death would: for a run that ended by an error and may be restarted. What
  /// was taken over is kept from the start: it is another process's state until somebody decides otherwise.
  void keep() { keep_ = true; }
  /// Nothing in it is needed any more.
  void give_up() { keep_ = false; }

  const std::filesystem::path& path() const { return path_; }
  const FileLock& lock() const { return *lock_; }
  /// It was there: a dead run of this id left it, with its files.
  bool taken_over() const { return taken_over_; }

 private:
  std::filesystem::path path_;
  int owner_ = -1;  // the owner file
  std::optional<FileLock> lock_;
  bool taken_over_ = false, keep_ = false;
};

/// Beside `folder`, where a store that does not fit the run any more is set aside.
std::filesystem::path aside_of(const std::filesystem::path& folder, u64 store_id);
/// The stores set aside beside `folder`, by id.
std::vector<u64> asides_of(const std::filesystem::path& folder);
/// Makes aside_of(folder, store_id) with an owner file, if it is not there. Errors: Error(io), Error(usage) as ScratchFolder.
std::filesystem::path make_aside(const std::filesystem::path& folder, u64 store_id);
void remove_aside(const std::filesystem::path& folder, u64 store_id);

struct Orphan {
  std::string name;        // of the folder, without the path
  std::string run;         // id of its run
  std::string owner;       // one line, as the dead owner wrote it
  bool set_aside = false;  // a store that its run could not use any more
  i64 bytes = 0;           // on the drive
  i64 age_s = 0;           // since its owner started
};

/// Folders of dead runs on `scratch`, by name: those with an owner file of ours that names the run of the folder's name. Those this user
/// may not read are left out. A missing path has none.
std::vector<Orphan> list_orphans(const std::filesystem::path& scratch);

/// Removes one. Errors: Error(usage) when it is not a run's folder or its owner is alive; Error(io) when it cannot be removed.
void remove_orphan(const std::filesystem::path& scratch, const std::string& name);

}  // namespace spillway::offload
