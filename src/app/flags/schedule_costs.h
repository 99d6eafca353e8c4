// --costs: times of a pipeline schedule's actions as users write them, and back. Thread-safe: pure functions.
#pragma once
#include <string>

#include "parallel/schedule/schedule_simulate.h"

namespace spillway::app {

/// "F=1,B=2,I=1,W=1,transfer=0.2,kept=0.5", each once, those left out as in ScheduleCosts{}. A time is one number for all stages or one a
/// stage with colons between: "F=1:1:1:1.5". Limits are simulate_schedule()'s
/// to check. Throws Error(usage) "[what] expected …, got …".
parallel::ScheduleCosts parse_costs(const std::string& text, const std::string& what);
/// Parses to the same value.
std::string print_costs(const parallel::ScheduleCosts& costs);

}  // namespace spillway::app
