// Proves a pipeline schedule before anybody draws, times or runs it. It trusts nothing: schedules come from files too. Pure functions;
// thread-safe.
#pragma once
#include <optional>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// Throws Error(data) "[schedule] x.csv, row 2, column 5: expected …, got …" (rows are ranks, from 1) at the first broken promise:
///   1. stages, micro-batches and ranks lie inside the schedule, every rank holds a stage and every stage one rank, that of its actions;
///   2. every (stage, micro-batch) has one F and either one B, or one I and one W, in this order;
///   3. an overlapped pair is an F and a B;
///   4. the order can end: no ranks wait for each other.
void check_schedule(const Schedule& schedule);

/// Why a checked schedule may be drawn and timed but not run: a stage adds its weight gradients (B or W) in another order than ascending
/// micro-batches, which would be other bits. Empty: it may run.
std::optional<std::string> why_not_executable(const Schedule& schedule);

}  // namespace spillway::parallel
