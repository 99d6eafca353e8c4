// Verifies a pipeline schedule before it is drawn, timed or run. The schedule may come from a file, so nothing about it is taken for
// granted. Pure functions; thread-safe.
#pragma once
#include <optional>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// Throws Error(data) "[schedule] x.csv, row 2, column 5: expected …, got …" at the first violation of these rules. Row 1 is rank 0.
///   1. Stages, micro-batches and ranks have indices below the schedule's numbers of them. Every rank holds a stage, and all actions of a
///      stage are on the one rank that holds it.
///   2. Every stage has, for every micro-batch, one F and after it either one B, or one I and after that one W.
///   3. An overlapped pair consists of an F and a B.
///   4. The order can be carried out to its end: ranks do not deadlock.
void check_schedule(const Schedule& schedule);

/// Returns why a schedule that passed check_schedule() may be drawn and timed but not run, or nothing if it may be run. A schedule may not
/// be run if a stage computes its weight gradients (B or W) in another order than ascending micro-batches, because the rounding of their
/// sum would then differ.
std::optional<std::string> why_not_executable(const Schedule& schedule);

}  // namespace spillway::parallel
