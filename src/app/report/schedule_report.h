// Prints a pipeline schedule as text, JSON or SVG. The functions are pure functions of a checked schedule and its simulated times;
// thread-safe.
#pragma once
#include <limits>
#include <string>

#include "parallel/schedule/schedule_simulate.h"

namespace spillway::app {

/// Text and JSON of a schedule with more than kMostShownActions actions do not contain the table. schedule_svg() throws for a schedule with
/// more than kMostDrawnActions.
constexpr i64 kMostShownActions = 20'000, kMostDrawnActions = 200'000;

struct ScheduleReport {
  const parallel::Schedule& schedule;
  const parallel::ScheduleCosts& costs;
  const parallel::ScheduleTimes& times;
};

/// Returns the schedule as a table with one row for each rank, followed by the makespan, the bubble, and each rank's busy and idle time and
/// peak activations. If all times are whole numbers, a column of the table is one unit of time. Otherwise a row lists its actions in order.
/// Rows longer than `width` columns are cut, and the parts of all ranks stand below each other.
std::string schedule_text(const ScheduleReport& report, size_t width = std::numeric_limits<size_t>::max());
std::string schedule_json(const ScheduleReport& report);
/// Draws one row for each rank. An action is a box whose width is its time, labelled with the
/// number of its micro-batch. Throws Error(usage) for more than kMostDrawnActions actions.
std::string schedule_svg(const ScheduleReport& report);

/// Returns the number of actions of all ranks, without idle slots.
i64 action_count(const parallel::Schedule& schedule);

}  // namespace spillway::app
