// The result of a rehearsal: whether the numbers are equal and finite, and times and memory beside the plan's predictions. Values.
#pragma once
#include <string>
#include <vector>

#include "app/commands/rehearse_run.h"
#include "app/record/audit.h"

namespace spillway::app {

struct RehearsalFigures {
  i64 steps = 0;           // number of steps compared
  bool after_kill = true;  // some of these steps were taken after the kill
  std::string last;        // JSON: the last line of metrics.jsonl of the run that was not killed
  std::string summary;     // JSON: the result of the run that continued to its end, with its audit
  i64 process_bytes = 0;   // peak of the largest process
  std::string save;        // the run's report of a save: "blocked 3 ms, durable after 40 ms"
  i64 checkpoint_bytes = 0;
  std::string left_out;  // what was not rehearsed, and why
};

/// Throws Error(numbers) if a loss or a gradient norm is not finite. With `norms_may` norms need not be finite, since fp16 searches for its
/// loss scale.
void check_finite(const Rows& rows, bool norms_may);
/// Throws Error(numbers) at the first step whose numbers differ. Returns the number of equal steps.
i64 compare_numbers(const Rows& straight, const Rows& killed);

std::string to_json(const RehearsalFigures& figures);
std::string to_text(const RehearsalFigures& figures);

}  // namespace spillway::app
