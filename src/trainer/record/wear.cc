#include "trainer/record/wear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

constexpr double kDaySeconds = 86400;

std::string bytes_text(double bytes) { return format_bytes(std::llround(std::min(bytes, 9e18))); }

}  // namespace

Wear wear_of(i64 written_bytes, i64 steps, i64 tokens, double seconds, std::optional<i64> endurance_bytes, double drives) {
  const auto written = static_cast<double>(written_bytes);
  Wear wear;
  if (steps > 0) wear.bytes_per_step = written / static_cast<double>(steps);
  if (tokens > 0) wear.bytes_per_token = written / static_cast<double>(tokens);
  if (seconds > 0) wear.bytes_per_day = written / seconds * kDaySeconds;
  if (endurance_bytes && wear.bytes_per_day > 0) {
    wear.days = static_cast<double>(*endurance_bytes) * std::max(1.0, drives) / wear.bytes_per_day;
  }
  return wear;
}

std::string to_text(const Wear& wear, std::optional<i64> endurance_bytes) {
  std::string text = fmt::format("{} a step, {} a token, {} a day at this rate", bytes_text(wear.bytes_per_step),
                                 bytes_text(wear.bytes_per_token), bytes_text(wear.bytes_per_day));
  if (endurance_bytes && wear.days)
    text += fmt::format("; rated writes ({} a drive) in {:.0f} days", print_endurance(*endurance_bytes), *wear.days);
  return text;
}

}  // namespace spillway::trainer
