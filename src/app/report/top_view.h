// Makes what the command `spillway top` shows of a run, read from its folder alone and printed as
// text. Reading is quick however long the run is, because only the end of metrics.jsonl is read.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/names/names.h"
#include "app/report/metrics_line.h"
#include "trainer/record/run_plan.h"
#include "trainer/run/run_status.h"

namespace spillway::app {

struct TopView {
  std::string name;
  RunStatus status;
  std::optional<RunPlan> plan;
  std::vector<MetricsLine> last;      // metrics of the last steps, oldest first
  std::string save_every;             // value of --checkpoint-every
  std::optional<double> since_start;  // seconds since the last process of the run began
};

/// Reads the run folder `run`. Throws the errors of read_run_status().
TopView look_at(const std::filesystem::path& run);

/// Returns the state of the run as one line, such as "running step 12/400  loss 2.1 …".
std::string top_line(const TopView& view);
/// Returns the lines of a full-screen view, made for a terminal of `columns` columns.
std::vector<std::string> top_screen(const TopView& view, size_t columns);
/// Returns when the next checkpoint is due, such as "at step 500" or "in 12 min". The result is empty if this is not known.
std::string next_save(const TopView& view);

}  // namespace spillway::app
