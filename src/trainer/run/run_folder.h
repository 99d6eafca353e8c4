// RunFolder writes a run's folder: config.json (every option resolved), metrics.jsonl, the files that other programs watch (TensorBoard
// events, metrics.csv), log.txt and checkpoints/. The folder is locked while it is in use. All methods are for one thread, except sync().
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
  /// Creates the folder if it does not exist and takes its lock. Throws Error(usage), which names host and
  /// process, if another run holds the lock. Only one rank of a run writes. On all other ranks `writes` is
  /// false: the object then only knows the path, takes no lock, and its writing methods do nothing.
  explicit RunFolder(std::filesystem::path path, bool writes = true);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns the configuration that the folder was made with. The result is empty if there is none yet.
  std::string config_text() const;
  void write_config(const std::string& json);
  /// Writes contents.json, which has checksums of the contents of the files that the run reads (RunContents).
  void write_contents(const std::string& json);
  /// Drops the lines of metrics.jsonl after `step` (0: all lines), and opens the file for appending. Returns the step of the last remaining
  /// line.
  i64 open_metrics(i64 step);
  /// Opens the TensorBoard event file and metrics.csv if `wish` asks for them. From then on
  /// lines, samples and histograms are written there too. Must be called after open_metrics(),
  /// whose result is `step`. Returns one warning for each file that cannot be written.
  std::vector<std::string> watch(WatchWish wish, i64 step, const std::string& config);
  /// Appends a line to metrics.jsonl. While the disk is full, lines wait in memory and are written once the disk has free
  /// space again. Returns a warning when waiting begins and a note when it ends, and in all other cases an empty text.
  std::string metrics_line(const std::string& json);
  /// Adds the results of a validation ("validation_loss" …) to the line of `step`, which must be the last line.
  /// Used for a validation that an earlier process began and did not finish. Returns what metrics_line() returns.
  std::string add_validation(i64 step, const std::string& json);
  /// Records text that the model generated after `step`. Returns what metrics_line() returns.
  std::string sample(i64 step, const std::string& text);
  /// Records a histogram of a parameter's values after `step`. Returns what metrics_line() returns.
  std::string histogram(i64 step, const std::string& parameter, const Histogram& histogram);
  /// Forces the lines of metrics.jsonl to stable storage. Called before a checkpoint
  /// is committed, so that the metrics line of the checkpoint's step survives a crash.
  void sync();
  /// Appends a line to log.txt, with date and time before the line.
  void log(std::string_view line);
  /// Returns a warning if the folder's filesystem cannot lock files. The warning says
  /// what replaces the lock. The result is empty if the filesystem can lock files.
  std::string lock_notice() const;

 private:
  bool writes() const { return descriptor_ >= 0; }
  std::string said_of_disk();

  std::filesystem::path path_;
  int descriptor_ = -1;  // descriptor of the lock file
  std::optional<FileLock> lock_;
  std::optional<GrowingFile> metrics_;
  std::optional<Watching> watching_;
  bool waited_ = false;  // true while lines of some file wait in memory for free space on the disk
  std::ofstream log_;
};

/// Removes what dead processes left among the checkpoints of a complete run
/// (remove_rests). Does nothing if the run's folder is in use or cannot be written to.
void tidy_finished(const std::filesystem::path& run);

/// Returns who holds the lock of a run's folder ("host h, process p"). The result is empty if nobody does. Writes nothing.
std::optional<std::string> run_owner(const std::filesystem::path& run);

}  // namespace spillway::trainer
