#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace spillway::optim {
namespace {

using Kind = Schedule::Kind;

// Returns a value that falls from 1 to 0 along half a cosine as `progress` goes from 0 to 1.
double half_cosine(double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * progress)); }

double between(double from, double to, double left) { return to + (from - to) * left; }

// Computes the onecycle rate. The rate rises before step `peak` and falls
// after it. `peak` may be negative or a fraction and is then not a step.
double onecycle(const Schedule& s, i64 step) {
  constexpr double kFirst = 1.0 / 25, kLast = 1e-4;
  const double first = s.learning_rate * kFirst, last = first * kLast;
  const double peak = s.pct_start * static_cast<double>(s.steps) - 1, end = static_cast<double>(s.steps - 1),
               at = static_cast<double>(step);
  if (at >= end && end > peak) return last;
  if (at <= peak) return peak > 0 ? between(first, s.learning_rate, half_cosine(at / peak)) : s.learning_rate;
  return peak < end ? between(s.learning_rate, last, half_cosine((at - peak) / (end - peak))) : s.learning_rate;
}

// Computes a learning rate that decays from step `begin` on and reaches the minimum at the last step.
double decayed(const Schedule& s, i64 begin, i64 step) {
  const double bottom = s.min_lr_ratio * s.learning_rate;
  const i64 steps = std::max<i64>(1, s.steps - 1 - begin);
  if (step <= begin) return s.learning_rate;
  if (step - begin >= steps) return bottom;
  const double progress = static_cast<double>(step - begin) / static_cast<double>(steps);
  const bool straight = s.kind == Kind::linear || s.kind == Kind::polynomial;
  const double left = straight ? 1 - progress : half_cosine(progress);
  return between(s.learning_rate, bottom, s.kind == Kind::polynomial ? std::pow(left, s.power) : left);
}

}  // namespace

double learning_rate(const Schedule& schedule, i64 step) {
  const i64 warmup = schedule.warmup_steps;
  if (schedule.kind == Kind::onecycle) return onecycle(schedule, step);
  if (step < warmup) return schedule.learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  switch (schedule.kind) {
    case Kind::constant:
      return schedule.learning_rate;
    case Kind::step:
      return schedule.learning_rate * std::pow(schedule.gamma, static_cast<double>((step - warmup) / schedule.step_size));
    case Kind::wsd:
      return decayed(schedule, std::max(warmup, schedule.steps - 1 - schedule.decay_steps), step);
    default:
      return decayed(schedule, warmup, step);
  }
}

}  // namespace spillway::optim
