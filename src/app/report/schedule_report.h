// A pipeline schedule for people and programs: text, JSON and SVG. Thread-safe: pure functions of a checked schedule and its times.
#pragma once
#include <string>

#include "parallel/schedule/schedule_simulate.h"

namespace spillway::app {

/// Beyond so many actions the text and the JSON leave the table out, and a drawing is refused.
constexpr i64 kMostShownActions = 20'000, kMostDrawnActions = 200'000;

struct ScheduleReport {
  const parallel::Schedule& schedule;
  const parallel::ScheduleCosts& costs;
  const parallel::ScheduleTimes& times;
};

/// The table (a row a rank, columns of one unit of time where all times are whole numbers, else actions in order), makespan, bubble, and
/// each rank's busy and idle time and activations.
std::string schedule_text(const ScheduleReport& report);
std::string schedule_json(const ScheduleReport& report);
/// A row a rank, an action a box as long as its time with its micro-batch in it. Throws Error(usage) on more than kMostDrawnActions.
std::string schedule_svg(const ScheduleReport& report);

/// All ranks' actions, idle slots left out.
i64 action_count(const parallel::Schedule& schedule);

}  // namespace spillway::app
