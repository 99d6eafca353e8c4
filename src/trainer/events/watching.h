// Watching writes two kinds of files into a run's folder, for other programs that watch the run: one TensorBoard event file for each start,
// and metrics.csv. Both kinds hold the numbers of metrics.jsonl. A failure never disturbs the run: a file that cannot be written is
// reported once, and the run continues without that file. Not thread-safe.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/events/growing_file.h"
#include "trainer/events/histogram.h"

namespace spillway::trainer {

/// WatchWish says which files the user asked for.
struct WatchWish {
  bool tensorboard = false, metrics_csv = false;
};

class Watching {
 public:
  /// Opens the files in the folder `run`. `step` is the step of the last line of metrics.jsonl, or 0 if there is none. TensorBoard
  /// ignores what older event files have for steps after `step`. The file metrics.csv is cut after the row of `step`, or made again from
  /// metrics.jsonl. An existing metrics.csv is continued even if `wish` does not ask for it. `config` is the run's configuration as JSON.
  Watching(const std::filesystem::path& run, WatchWish wish, i64 step, const std::string& config);

  /// Returns one sentence for each file that was asked for and could not be opened.
  const std::vector<std::string>& missing() const { return missing_; }
  /// Writes the numbers of a line of metrics.jsonl.
  void line(const std::string& metrics_line);
  /// Adds validation results to the last step after the metrics line of this step was written. `added` is
  /// JSON with "step" and the new numbers. `line` is the complete new line of the step in metrics.jsonl.
  void validation(const std::string& added, const std::string& line);
  /// text() and histogram() write to the TensorBoard event file only.
  void text(i64 step, std::string_view tag, std::string_view text);
  void histogram(i64 step, std::string_view tag, const Histogram& histogram);
  std::vector<const GrowingFile*> files() const;

 private:
  const std::filesystem::path run_;
  std::optional<GrowingFile> events_, csv_;
  std::vector<std::string> missing_;
};

/// Returns an unused name for an event file in the folder `run`, as TensorFlow forms it: "events.out.tfevents.1700000000.host.4711.0"
/// (seconds since 1970, host, process, number). The name sorts behind those of all event files in the folder, even if the clock was set
/// back, because TensorBoard reads event files in the order of their names. `now` is in seconds since 1970.
std::string next_event_name(const std::filesystem::path& run, i64 now);

}  // namespace spillway::trainer
