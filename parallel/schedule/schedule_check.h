// Verifies a pipeline schedule before it is drawn, timed or run. Nothing about the schedule is assumed, since it may come from a file. Pure
// functions; thread-safe.
#pragma once
#include <optional>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// Throws Error(data) "[schedule] x.csv, row 2, column 5: expected …, got …" (rows are ranks, from 1) at the first violation of these
/// rules:
///   1. Stages, micro-batches and ranks lie within the schedule's numbers. Every rank holds a stage, and all actions of a stage are on
///      its one rank.
///   2. Every (stage, micro-batch) has one F and then either one B, or one I and after it one W.
///   3. An overlapped pair is an F and a B.
///   4. The order can be carried out to its end: ranks do not deadlock.
void check_schedule(const Schedule& schedule);

/// Returns the reason why a checked schedule may be drawn and timed but not run; empty if it may run. The reason is that a stage adds its
/// weight gradients (B or W) in another order than ascending micro-batches, which would change the bits of the sum.
std::optional<std::string> why_not_executable(const Schedule& schedule);

}  // namespace spillway::parallel
