// Prints a pipeline schedule as text, JSON or SVG. Thread-safe: pure functions of a checked schedule and its simulated times.
#pragma once
#include <string>

#include "parallel/schedule/schedule_simulate.h"

namespace spillway::app {

/// With more than kMostShownActions actions, text and JSON leave the table out; with more than kMostDrawnActions, schedule_svg() throws.
constexpr i64 kMostShownActions = 20'000, kMostDrawnActions = 200'000;

struct ScheduleReport {
  const parallel::Schedule& schedule;
  const parallel::ScheduleCosts& costs;
  const parallel::ScheduleTimes& times;
};

/// Returns the schedule as a table with one row for each rank, then the makespan, the bubble, and each rank's busy and idle time and peak
/// activations. If all times are whole numbers, a column of the table is one unit of time; otherwise a row lists its actions in order.
std::string schedule_text(const ScheduleReport& report);
std::string schedule_json(const ScheduleReport& report);
/// Draws one row for each rank. An action is a box whose width is its time, labelled with the number of its micro-batch. Throws
/// Error(usage) for more than kMostDrawnActions.
std::string schedule_svg(const ScheduleReport& report);

/// Returns the number of actions of all ranks, without idle slots.
i64 action_count(const parallel::Schedule& schedule);

}  // namespace spillway::app
