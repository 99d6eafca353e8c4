// What metrics.jsonl tells of a run, read line by line: each number over the steps, its last, best and mean value, what bound the steps,
// and the audit of the last process's. Memory is that of the charts, however long the run. A step that was run again (a start that went
// back, a process killed between a line and its checkpoint) counts once, as its last line says. Half a line at the end is left out and
// said, a damaged line is left out, counted and named. Values.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/record/run_plan.h"
#include "app/report/metrics_line.h"
#include "app/report/series.h"

namespace spillway::app {

struct History {
  static constexpr size_t kNamed = 5;
  i64 damaged = 0;
  std::vector<i64> damaged_lines;  // the first of them, at most kNamed
  bool torn = false;               // the last line is not whole
  i64 run_again = 0;               // lines of steps that later lines tell of

  i64 first_step = 0, last_step = 0, steps = 0;  // steps: lines that count
  i64 tokens = 0, positions = 0;                 // without and with padding, which tokens of older programs have too
  i64 samples = 0, skipped = 0, clipped = 0, redo = 0, not_finite = 0;
  double seconds = 0;       // of the steps
  std::vector<i64> starts;  // the steps before which a process began
  i64 parts_lost = 0;       // steps that no line tells of, between the first and the last

  std::vector<Measure> measures = std::vector<Measure>(metric_names().size());  // by column, as is
  std::vector<Series> series = std::vector<Series>(metric_names().size());
  MetricsLine last;

  /// Neighbouring steps that the same thing bound, most of the time.
  struct Bound {
    i64 first = 0, last = 0;
    std::string by;
  };
  std::vector<Bound> bounds;
  std::map<std::string, i64> bound_steps;
  // Of the last process, but for the two steps that warm up where there are more:
  Audit audit;
  Phases phase_ms;                                        // their means
  std::array<double, offload::kTiers> read{}, written{};  // and of bytes
  double exchanged = 0, sent = 0;
  i64 process_steps = 0;  // so many

  const Measure& measure(std::string_view name) const { return measures[metric(name)]; }
  const Series& of(std::string_view name) const { return series[metric(name)]; }
};

/// `buckets`: of the charts. `plan`: what the audit sets beside the steps, where it is of their process. Error(io).
History read_history(const std::filesystem::path& file, i64 buckets, const std::optional<RunPlan>& plan);

}  // namespace spillway::app
