// Reads the history of a run from metrics.jsonl, line by line: each number over the steps with its last, best and mean
// value, which resource limited the speed of which steps, and how the steps of the last process compare with the plan
// (Audit). Memory use depends on the charts, not on the length of the run. A step that was run again (after a restart from
// an earlier checkpoint, or after a process was killed between a line and its checkpoint) counts once, by its last line. An
// incomplete last line is left out and noted; damaged lines are left out, counted and named. The types are plain values.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/names/names.h"
#include "app/report/metrics_line.h"
#include "app/report/series.h"
#include "trainer/record/run_plan.h"

namespace spillway::app {

struct History {
  static constexpr size_t kNamed = 5;
  i64 damaged = 0;
  std::vector<i64> damaged_lines;  // line numbers of the first damaged lines, at most kNamed
  bool torn = false;               // true if the last line is incomplete
  i64 run_again = 0;               // number of lines that do not count, because their step was run again later

  i64 first_step = 0, last_step = 0, steps = 0;  // `steps` is the number of lines that count
  i64 tokens = 0, positions = 0;                 // positions include padding; tokens include it only in runs of older programs
  i64 samples = 0, skipped = 0, clipped = 0, redo = 0, not_finite = 0;
  double seconds = 0;       // duration of all steps that count, summed
  std::vector<i64> starts;  // for each process of the run: the step after which the process began
  i64 parts_lost = 0;       // number of steps without a line in metrics.jsonl, between the first and the last step that have one

  // mean, best and last value over all steps, one entry for each name in metric_names()
  std::vector<Measure> measures = std::vector<Measure>(metric_names().size());
  // values over the steps, thinned to what a chart can show, one entry for each name in metric_names()
  std::vector<Series> series = std::vector<Series>(metric_names().size());
  MetricsLine last;

  /// Bound is a range of neighbouring steps, most of which were limited by the same resource.
  struct Bound {
    i64 first = 0, last = 0;
    std::string by;
  };
  std::vector<Bound> bounds;
  std::map<std::string, i64> bound_steps;
  // The members from here on are about the last process of the run. The first two steps of a process are a warm-up, which is not counted
  // if the process made more than two.
  Audit audit;
  Phases phase_ms;                                        // mean milliseconds per step, by phase
  std::array<double, offload::kTiers> read{}, written{};  // mean bytes that a step reads from and writes to each tier
  // mean bytes per step that are exchanged between data-parallel ranks and sent between pipeline stages
  double exchanged = 0, sent = 0;
  i64 process_steps = 0;  // number of steps over which the means of the last process were taken

  const Measure& measure(std::string_view name) const { return measures[metric(name)]; }
  const Series& of(std::string_view name) const { return series[metric(name)]; }
};

/// Reads metrics.jsonl. Each chart keeps at most two points for each of `buckets` ranges of steps. If `plan` is given and is the plan of
/// the run's last process, the audit compares the steps of that process with it. Throws Error(io) if the file cannot be read.
History read_history(const std::filesystem::path& file, i64 buckets, const std::optional<RunPlan>& plan);

}  // namespace spillway::app
