// The numbers on the axis of a chart: chooses round tick values and formats them with their unit. Pure functions.
#pragma once
#include <string>
#include <vector>

namespace spillway::app {

enum class Unit { number, count, bytes, seconds };  // a count is a whole number, shown as "12k"

/// Formats a value with its unit: "4.371", "12.5k", "640 MiB", "3.2 s".
std::string shown(double value, Unit unit);
/// Returns about `about` round numbers in [low, high] for a linear axis. Requires low < high.
std::vector<double> ticks(double low, double high, int about, Unit unit);
/// Returns the ticks of a logarithmic axis: the powers of ten in [low, high], and 2 and 5 times those if there are few. Requires 0 < low <
/// high.
std::vector<double> log_ticks(double low, double high);

}  // namespace spillway::app
