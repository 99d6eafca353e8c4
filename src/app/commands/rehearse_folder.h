// Where a rehearsal works: a folder beside the run's, on the same filesystem, that goes again with all that its runs left on the scratch
// paths. It is locked while its rehearsal lives, and says what there is to clear up: the next rehearsal clears up after one that was
// killed. One thread.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/flags/config.h"
#include "base/file_lock.h"

namespace spillway::app {

/// The folders of the two runs of a rehearsal.
inline constexpr const char *kKilledRun = "killed", *kStraightRun = "straight";

class RehearsalFolder {
 public:
  /// Of the run with this --out and these scratch paths. Errors: Error(usage) where another rehearsal works there, or something is there
  /// that is none's, or --out could not be made.
  explicit RehearsalFolder(const TrainConfig& config);
  /// clear().
  ~RehearsalFolder();
  RehearsalFolder(const RehearsalFolder&) = delete;
  RehearsalFolder& operator=(const RehearsalFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Removes it, what its runs left on scratch, and the folders that were made for it. None of its runs may live. Returns what could not
  /// be removed; empty: nothing is left behind.
  std::string clear();

 private:
  void take();
  void clear_up_after_dead();
  void write_down();
  std::string reclaim_scratch() const;

  std::filesystem::path path_;
  std::vector<std::string> scratch_;  // absolute
  std::vector<std::string> made_;     // folders that were not there, outermost first
  int descriptor_ = -1;               // of the lock's file
  std::optional<FileLock> lock_;
};

}  // namespace spillway::app
