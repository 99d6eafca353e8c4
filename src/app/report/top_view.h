// What `top` shows of a run: read from the run's folder alone, as text. Reading is quick however long the run: of metrics.jsonl the end.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/record/run_plan.h"
#include "app/report/metrics_line.h"
#include "app/run/run_status.h"

namespace spillway::app {

struct TopView {
  std::string name;
  RunStatus status;
  std::optional<RunPlan> plan;
  std::vector<MetricsLine> last;      // of the last steps, oldest first
  std::string save_every;             // --checkpoint-every
  std::optional<double> since_start;  // seconds since the process began to train, or had
};

/// Errors: as read_run_status().
TopView look_at(const std::filesystem::path& run);

/// "step 12/400  loss 2.1 …", one line.
std::string top_line(const TopView& view);
/// A screen of it, `columns` wide at the most.
std::vector<std::string> top_screen(const TopView& view, size_t columns);
/// "at step 500", "in 12 min"; empty: nobody knows.
std::string next_save(const TopView& view);

}  // namespace spillway::app
