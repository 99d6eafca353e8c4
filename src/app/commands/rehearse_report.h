// What a rehearsal found: whether the numbers are the same and finite, and times and memory beside what the plan said of them. Values.
#pragma once
#include <string>
#include <vector>

#include "app/commands/rehearse_run.h"
#include "app/record/audit.h"

namespace spillway::app {

struct RehearsalFigures {
  i64 steps = 0;           // compared
  bool after_kill = true;  // of them some were taken after it
  std::string last;        // JSON: the last line of metrics.jsonl of the run that was not killed
  std::string summary;     // JSON: what the run gave that went on to its end, its audit in it
  i64 process_bytes = 0;   // of the largest process
  std::string save;        // "blocked 3 ms, durable after 40 ms"
  i64 checkpoint_bytes = 0;
  std::string left_out;  // what was not rehearsed, and why
};

/// Throws Error(numbers) where a loss, or a norm (unless `norms_may` be anything: fp16 looks for its scale), is not finite.
void check_finite(const Rows& rows, bool norms_may);
/// Throws Error(numbers) at the first step whose numbers differ. Returns how many are the same.
i64 compare_numbers(const Rows& straight, const Rows& killed);

std::string to_json(const RehearsalFigures& figures);
std::string to_text(const RehearsalFigures& figures);

}  // namespace spillway::app
