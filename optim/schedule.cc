#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/error.h"

namespace spillway::optim {

double learning_rate(const Schedule& schedule, i64 step) {
  const i64 warmup = schedule.warmup_steps;
  const double top = schedule.learning_rate;
  if (step < warmup) return top * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  const i64 decay_steps = std::max<i64>(1, schedule.steps - 1 - warmup);
  if (schedule.kind == Schedule::Kind::constant || step == warmup) return top;
  const double bottom = schedule.min_lr_ratio * top;
  if (step - warmup >= decay_steps) return bottom;
  const double progress = static_cast<double>(step - warmup) / static_cast<double>(decay_steps);
  const double left = schedule.kind == Schedule::Kind::linear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return bottom + (top - bottom) * left;
}

Schedule::Kind parse_schedule(std::string_view name) {
  if (name == "constant") return Schedule::Kind::constant;
  if (name == "linear") return Schedule::Kind::linear;
  if (name == "cosine") return Schedule::Kind::cosine;
  throw Error(ErrorCode::usage, "[learning-rate schedule] expected constant, linear or cosine, got \"" + std::string(name) + "\"");
}

}  // namespace spillway::optim
