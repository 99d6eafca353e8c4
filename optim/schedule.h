// Learning rates: warm-up lr * (s + 1) / (W + 1) for the first W steps s = 0, 1 …, then constant, or cosine or linear down to
// min_lr_ratio * lr at the last step. Pure functions.
#pragma once
#include <string_view>

#include "base/types.h"

namespace spillway::optim {

struct Schedule {
  enum class Kind { constant, linear, cosine } kind = Kind::cosine;
  double learning_rate = 3e-4;
  i64 warmup_steps = 0, steps = 1;
  double min_lr_ratio = 0.1;
};

/// Of step s, from 0.
double learning_rate(const Schedule& schedule, i64 step);
/// Throws Error(usage) naming the known ones.
Schedule::Kind parse_schedule(std::string_view name);

}  // namespace spillway::optim
