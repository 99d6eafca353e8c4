// What a run leaves in its folder for other programs to watch, beside metrics.jsonl and with its numbers: an event file of TensorBoard for
// each start, and metrics.csv. Nothing of it disturbs the run: what cannot be written is said once, and done without. One thread.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/events/growing_file.h"
#include "app/events/histogram.h"

namespace spillway::app {

struct WatchWish {
  bool tensorboard = false, metrics_csv = false;
};

class Watching {
 public:
  /// `step`: of the last line of metrics.jsonl (0: there is none). What older event files have of later steps no longer counts, and
  /// metrics.csv is made from these lines; one that is there is kept up whether or not it is wanted now. `config`: the run's, in JSON.
  Watching(const std::filesystem::path& run, WatchWish wish, i64 step, const std::string& config);

  /// Of what is wanted and cannot be made, a line each.
  const std::vector<std::string>& missing() const { return missing_; }
  /// A line of metrics.jsonl.
  void line(const std::string& metrics_line);
  /// Numbers of the last step, whose line was changed after it was written: "step" and what was added to it, and the whole line now.
  void validation(const std::string& added, const std::string& line);
  /// For TensorBoard alone.
  void text(i64 step, std::string_view tag, std::string_view text);
  void histogram(i64 step, std::string_view tag, const Histogram& histogram);
  std::vector<const GrowingFile*> files() const;

 private:
  const std::filesystem::path run_;
  std::optional<GrowingFile> events_, csv_;
  std::vector<std::string> missing_;
};

/// TensorFlow's name for an event file, "events.out.tfevents.1700000000.host.4711.0", of which there is none in the folder and which sorts
/// behind all that are there: TensorBoard reads them in this order, whatever the clock says. `now`: seconds since 1970.
std::string next_event_name(const std::filesystem::path& run, i64 now);

}  // namespace spillway::app
