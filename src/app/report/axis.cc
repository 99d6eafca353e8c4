#include "app/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/units.h"

namespace spillway::app {
namespace {

std::string scaled(double value) {
  constexpr std::pair<double, const char*> kScales[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, letter] : kScales) {
    if (std::abs(value) >= scale * 0.99995) return fmt::format("{:.4g}{}", value / scale, letter);
  }
  return fmt::format("{:.4g}", value);
}

std::string duration(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds < 1e-3) return fmt::format("{:.3g} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return seconds < 60 ? fmt::format("{:.3g} s", seconds) : format_duration(seconds);
}

// Returns the smallest number of the form 1, 2 or 5 times a power of ten that is not below `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1, 2, 5}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Returns the unit whose multiples count as round numbers: a power of 1024 for bytes, otherwise 1.
double base_of(double step, Unit unit) {
  if (unit != Unit::bytes) return 1;
  double base = 1;
  while (step >= 1000 * base) base *= 1024;
  return base;
}

}  // namespace

std::string shown(double value, Unit unit) {
  switch (unit) {
    case Unit::number:
      return value != 0 && (std::abs(value) < 1e-3 || std::abs(value) >= 1e6) ? fmt::format("{:.3g}", value) : fmt::format("{:.4g}", value);
    case Unit::count:
      return scaled(value);
    case Unit::bytes:
      return format_bytes(static_cast<long long>(std::clamp(value, 0.0, 9e18)));
    case Unit::seconds:
      return duration(value);
  }
  return "";
}

std::vector<double> ticks(double low, double high, int about, Unit unit) {
  const double wanted = (high - low) / about, base = base_of(wanted, unit);
  double step = base * round_step(wanted / base);
  if (unit == Unit::count) step = std::max(1.0, step);
  std::vector<double> all;
  for (double n = std::ceil(low / step - 1e-9); n * step <= high + step * 1e-9 && all.size() < 50; ++n)
    all.push_back(n == 0 ? 0 : n * step);
  return all;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> all;
  const bool few = high / low < 100;
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high && all.size() < 40; power *= 10) {
    for (const double factor : {1, 2, 5}) {
      const double tick = factor * power;
      if ((factor == 1 || few) && tick >= low && tick <= high) all.push_back(tick);
    }
  }
  if (all.size() < 12) return all;
  std::vector<double> thin;
  for (size_t n = 0; n < all.size(); n += all.size() / 6) thin.push_back(all[n]);
  return thin;
}

}  // namespace spillway::app
