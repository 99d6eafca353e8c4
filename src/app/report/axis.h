// Chooses round numbers for the ticks on the axis of a chart and formats them with their unit. All functions are pure.
#pragma once
#include <string>
#include <vector>

namespace spillway::app {

enum class Unit { number, count, bytes, seconds };  // a count is a whole number, shown for example as "12k"

/// Formats a value with its unit: "4.371", "12.5k", "640 MiB", "3.2 s".
std::string shown(double value, Unit unit);
/// Returns about `about` round numbers in [low, high] for a linear axis. `low` must be less than `high`.
std::vector<double> ticks(double low, double high, int about, Unit unit);
/// Returns the ticks of a logarithmic axis: the powers of ten in [low, high]. If these are few, 2 and 5 times the powers are added. `low`
/// must be above 0 and less than `high`.
std::vector<double> log_ticks(double low, double high);

}  // namespace spillway::app
