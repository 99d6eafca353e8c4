// Writes a run's folder: config.json (every option resolved), metrics.jsonl, the files that other programs watch (TensorBoard events,
// metrics.csv), log.txt and checkpoints/. The folder is locked while it is in use. One thread, except for sync().
#pragma once
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_lock.h"
#include "base/types.h"
#include "trainer/events/growing_file.h"
#include "trainer/events/watching.h"

namespace spillway::trainer {

class RunFolder {
 public:
  /// Creates the folder if it does not exist and takes its lock. Throws Error(usage), which names host and process, if another run holds
  /// the lock. Only one rank of a run writes; on the other ranks `writes` is false: the object then holds only the path, takes no lock, and
  /// its writing methods do nothing.
  explicit RunFolder(std::filesystem::path path, bool writes = true);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns the configuration that the folder was made with; empty if there is none yet.
  std::string config_text() const;
  void write_config(const std::string& json);
  /// Writes contents.json, which has checksums of the contents of the files that the run reads (RunContents).
  void write_contents(const std::string& json);
  /// Drops the lines of metrics.jsonl after `step` (0: all lines), then opens it for appending. Returns the step of the last line left.
  i64 open_metrics(i64 step);
  /// Opens the TensorBoard event file and metrics.csv if `wish` asks for them; lines, samples and histograms are then written there too.
  /// Call watch() after open_metrics(); `step` is the step that open_metrics() returned. Returns one warning for each file that cannot be
  /// written.
  std::vector<std::string> watch(WatchWish wish, i64 step, const std::string& config);
  /// Appends a line to metrics.jsonl. While the disk is full, lines wait in memory and are written once it has room again. Returns a
  /// warning when waiting begins and a note when it ends; else empty.
  std::string metrics_line(const std::string& json);
  /// Adds the results of a validation ("validation_loss" …) to the line of `step`, which must be the last line. It is used for a validation
  /// that an earlier process began and did not finish. Returns what metrics_line() returns.
  std::string add_validation(i64 step, const std::string& json);
  /// Records text that the model generated after `step`. Returns what metrics_line() returns.
  std::string sample(i64 step, const std::string& text);
  /// Records a histogram of a parameter's values after `step`. Returns what metrics_line() returns.
  std::string histogram(i64 step, const std::string& parameter, const Histogram& histogram);
  /// Forces the lines of metrics.jsonl to stable storage. It is called before a checkpoint is committed, so that the line of its step
  /// survives.
  void sync();
  /// Appends a line to log.txt, with the time of day before it.
  void log(std::string_view line);
  /// If the folder's filesystem cannot lock files, returns a warning that says what replaces the lock; else empty.
  std::string lock_notice() const;

 private:
  bool writes() const { return descriptor_ >= 0; }
  std::string said_of_disk();

  std::filesystem::path path_;
  int descriptor_ = -1;  // descriptor of the lock file
  std::optional<FileLock> lock_;
  std::optional<GrowingFile> metrics_;
  std::optional<Watching> watching_;
  bool waited_ = false;  // lines of some file are waiting in memory for room on the disk
  std::ofstream log_;
};

/// Removes the remains of dead processes from among the checkpoints of a complete run (remove_rests). Does nothing if the run's folder is
/// in use or cannot be written to.
void tidy_finished(const std::filesystem::path& run);

/// Returns who holds the lock of a run's folder ("host h, process p"); empty if nobody does. Only reads.
std::optional<std::string> run_owner(const std::filesystem::path& run);

}  // namespace spillway::trainer
