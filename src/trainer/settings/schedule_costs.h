// Parses and prints the value of --costs, the times of a pipeline schedule's actions: forward (F), backward (B), the
// input-gradient part of a backward (I), its weight-gradient part (W) and transfers. All functions are pure, thus thread-safe.
#pragma once
#include <string>

#include "parallel/schedule/schedule_simulate.h"

namespace spillway::trainer {

/// Parses a text such as "F=1,B=2,I=1,W=1,transfer=0.2,kept=0.5". Each key may be given once; a missing key keeps its value in
/// ScheduleCosts{}. `transfer` is the time to send an activation or a gradient to another rank, and `kept` the share of an activation
/// that W still needs after I. A time is one number for all stages, or one number per stage separated by colons: "F=1:1:1:1.5". The
/// limits of the values are checked later, by simulate_schedule(). Throws Error(usage) "[what] expected …, got …".
parallel::ScheduleCosts parse_costs(const std::string& text, const std::string& what);
/// Returns a text that parse_costs() parses to the same value.
std::string print_costs(const parallel::ScheduleCosts& costs);

}  // namespace spillway::trainer
