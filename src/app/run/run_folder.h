// A run's folder: config.json (everything resolved), metrics.jsonl and what others watch it by, log.txt, checkpoints/. Locked while in use.
// One thread, but for sync().
#pragma once
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/events/growing_file.h"
#include "app/events/watching.h"
#include "base/file_lock.h"
#include "base/types.h"

namespace spillway::app {

class RunFolder {
 public:
  /// Creates it if need be and takes its lock. Error(usage) naming host and process when another run holds it. Of the ranks of a run one
  /// writes; for the others it is a path, and what they write goes nowhere.
  explicit RunFolder(std::filesystem::path path, bool writes = true);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The configuration the folder was made with; empty when there is none yet.
  std::string config_text() const;
  void write_config(const std::string& json);
  /// Drops the lines of metrics.jsonl after `step` (0: all), then opens it for appending. Returns the last step that is there.
  i64 open_metrics(i64 step);
  /// Behind open_metrics(), with the step it returned: lines, samples and histograms go to these files too. Returns lines of text, to be
  /// said.
  std::vector<std::string> watch(WatchWish wish, i64 step, const std::string& config);
  /// Where the disk takes no more, the line waits in memory for the next one that it takes. Returns a line of text, to be said, when that
  /// begins and when it ends; else nothing.
  std::string metrics_line(const std::string& json);
  /// A validation after `step` that an earlier process did not make: its numbers ("validation_loss" …) go into that step's line, which is
  /// the last. Likewise.
  std::string add_validation(i64 step, const std::string& json);
  /// Text that the model wrote after `step`. Returns what metrics_line() returns.
  std::string sample(i64 step, const std::string& text);
  /// Of a parameter's values after `step`. Likewise.
  std::string histogram(i64 step, const std::string& parameter, const Histogram& histogram);
  /// metrics.jsonl is on stable storage as far as it is written: before a checkpoint of its last step is.
  void sync();
  /// With the time of day before it.
  void log(std::string_view line);
  /// Where the folder's filesystem cannot lock: what holds the folder instead, to be said.
  std::string lock_notice() const;

 private:
  bool writes() const { return descriptor_ >= 0; }
  std::string said_of_disk();

  std::filesystem::path path_;
  int descriptor_ = -1;  // of the lock's file
  std::optional<FileLock> lock_;
  std::optional<GrowingFile> metrics_;
  std::optional<Watching> watching_;
  bool waited_ = false;  // some file, for the disk
  std::ofstream log_;
};

/// Who holds the lock of a run's folder, "host h, process p"; empty when nobody does. Reads only.
std::optional<std::string> run_owner(const std::filesystem::path& run);

}  // namespace spillway::app
