// Manages the folder in which a rehearsal works. The folder lies beside the run's folder on the same filesystem, and is removed afterwards
// together with everything that the rehearsal's runs left on the scratch paths. A file in the folder is locked while the rehearsal lives,
// and lists what has to be removed. With this list the next rehearsal cleans up after one that was killed. For use by one thread.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/names/names.h"
#include "base/file_lock.h"
#include "trainer/settings/config.h"

namespace spillway::app {

/// These are the names of the folders of a rehearsal's two runs: the one that is killed and the one that is not.
inline constexpr const char *kKilledRun = "killed", *kStraightRun = "straight";

class RehearsalFolder {
 public:
  /// Creates the folder for the run with this --out and these scratch paths. Throws Error(usage) if another
  /// rehearsal uses the folder, if the folder holds files that no rehearsal made, or if --out could not be created.
  explicit RehearsalFolder(const TrainConfig& config);
  /// Calls clear().
  ~RehearsalFolder();
  RehearsalFolder(const RehearsalFolder&) = delete;
  RehearsalFolder& operator=(const RehearsalFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Removes the folder, what its runs left on the scratch paths, and the parent folders that were made for it.
  /// None of the runs may be alive. Returns what could not be removed, or an empty text if everything was removed.
  std::string clear();

 private:
  void take();
  void clear_up_after_dead();
  void write_down();
  std::string reclaim_scratch() const;

  std::filesystem::path path_;
  std::vector<std::string> scratch_;  // absolute scratch paths of the rehearsal
  std::vector<std::string> made_;     // folders that were created, outermost first
  int descriptor_ = -1;               // descriptor of the lock file
  std::optional<FileLock> lock_;
};

}  // namespace spillway::app
