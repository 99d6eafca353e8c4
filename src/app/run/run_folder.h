// A run's folder: config.json (everything resolved), metrics.jsonl, log.txt, checkpoints/. Locked while in use. One thread.
#pragma once
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

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
  void metrics_line(const std::string& json);
  void log(const std::string& line);

 private:
  bool writes() const { return lock_ >= 0; }

  std::filesystem::path path_;
  int lock_ = -1;
  std::ofstream metrics_, log_;
};

/// Who holds the lock of a run's folder, "host h, process p"; empty when nobody does. Reads only.
std::optional<std::string> run_owner(const std::filesystem::path& run);

}  // namespace spillway::app
