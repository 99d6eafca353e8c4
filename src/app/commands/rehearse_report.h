// Formats the result of a rehearsal: whether its two runs computed equal and finite numbers,
// and its times and memory beside the plan's predictions. The types are plain values.
#pragma once
#include <string>
#include <vector>

#include "app/commands/rehearse_run.h"
#include "app/names/names.h"
#include "trainer/record/audit.h"

namespace spillway::app {

struct RehearsalFigures {
  i64 steps = 0;           // number of steps compared
  bool after_kill = true;  // true if some of these steps were taken after the kill
  std::string last;        // JSON: last line of metrics.jsonl of the run that was not killed
  std::string summary;     // JSON: result of the run that was killed and resumed, with planned and measured figures
  i64 process_bytes = 0;   // peak memory of the largest process
  std::string save;        // the run's report of a save, such as "blocked 3 ms, durable after 40 ms"
  i64 checkpoint_bytes = 0;
  std::string left_out;  // names what was not rehearsed, and why
};

/// Throws Error(numbers) if a loss or a gradient norm is not finite. If `norms_may` is true, gradient
/// norms need not be finite, because fp16 training overflows until it has found its loss scale.
void check_finite(const Rows& rows, bool norms_may);
/// Throws Error(numbers) at the first step whose numbers differ. Returns the number of equal steps.
i64 compare_numbers(const Rows& straight, const Rows& killed);

std::string to_json(const RehearsalFigures& figures);
std::string to_text(const RehearsalFigures& figures);

}  // namespace spillway::app
