// A ScratchFolder is a run's own folder `spillway-<run id>` on a scratch path (scratch_path.h). The folder has an owner file that is locked
// (FileLock) while its owner lives. So two runs on one path cannot collide, and the folders of dead runs (kill -9, power loss) can be
// distinguished from those of live runs and reclaimed. A folder without an owner file belongs to no run, whatever its name. The kernel
// drops the lock when the process ends, so no cleanup is needed for it. Thread-safety: a ScratchFolder belongs to one thread; the functions
// keep no state.
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
  /// Creates `scratch/spillway-RUN_ID` (mode 0700) or, if its owner is dead, takes it over. A folder has one owner: processes that share a
  /// path add their rank to the id. Errors: Error(usage) for an id with characters other than letters, digits, `.`, `_`, `-`, for a folder
  /// whose owner is alive (the message names run, host, pid, time), and for a folder that no run of this id and user made; Error(io)
  /// otherwise.
  ScratchFolder(const std::filesystem::path& scratch, const std::string& run_id);
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  /// Removes the folder and its content if this object created the folder, and leaves both in place if it took
  /// the folder over. A call of keep() or give_up() overrides that; the last such call counts.
  ~ScratchFolder();

  /// Makes the destructor leave everything in place, as a crash would. This serves a run that ended by an error and may be restarted. A
  /// folder that was taken over is kept from the start, since it holds another process's state until somebody decides otherwise.
  void keep() { keep_ = true; }
  /// Makes the destructor remove the folder, because nothing in it is needed any more.
  void give_up() { keep_ = false; }

  const std::filesystem::path& path() const { return path_; }
  const FileLock& lock() const { return *lock_; }
  /// Returns true if the folder existed already: a dead run of this id left it, with its files.
  bool taken_over() const { return taken_over_; }

 private:
  std::filesystem::path path_;
  int owner_ = -1;  // descriptor of the owner file
  std::optional<FileLock> lock_;
  bool taken_over_ = false, keep_ = false;
};

/// Returns the path next to `folder` where a store that no longer fits the run is set aside.
std::filesystem::path aside_of(const std::filesystem::path& folder, u64 store_id);
/// Returns the ids of the stores for which a folder aside_of(folder, id) exists, in ascending order.
std::vector<u64> asides_of(const std::filesystem::path& folder);
/// Creates the folder aside_of(folder, store_id) with an owner file, if it does not exist. Errors: Error(io), Error(usage) as for
/// ScratchFolder.
std::filesystem::path make_aside(const std::filesystem::path& folder, u64 store_id);
void remove_aside(const std::filesystem::path& folder, u64 store_id);

struct Orphan {
  std::string name;        // name of the folder, without the path
  std::string run;         // id of the run that made the folder
  std::string owner;       // line of the owner file, which names the process that owned the folder
  bool set_aside = false;  // true if the folder holds a store that its run could no longer use
  i64 bytes = 0;           // bytes that the folder takes on the drive
  i64 age_s = 0;           // seconds since the process that owned the folder started
};

/// Returns the folders of dead runs on `scratch`, sorted by name: those with a valid owner file whose run matches the folder's name.
/// Folders that this user may not read are left out. The list is empty if the path does not exist.
std::vector<Orphan> list_orphans(const std::filesystem::path& scratch);

/// Removes one folder. Errors: Error(usage) if it is not a run's folder or its owner is alive; Error(io) if it cannot be removed.
void remove_orphan(const std::filesystem::path& scratch, const std::string& name);

}  // namespace spillway::offload
