// Numbers on an axis: round ones, with their unit. Pure functions.
#pragma once
#include <string>
#include <vector>

namespace spillway::app {

enum class Unit { number, count, bytes, seconds };  // count: whole, "12k"

/// "4.371", "12.5k", "640 MiB", "3.2 s".
std::string shown(double value, Unit unit);
/// Round numbers in [low, high], about so many; low < high.
std::vector<double> ticks(double low, double high, int about, Unit unit);
/// Powers of ten, and where they are few what lies between; 0 < low < high.
std::vector<double> log_ticks(double low, double high);

}  // namespace spillway::app
