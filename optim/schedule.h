// Learning rates: warm-up lr * (s + 1) / (W + 1) for the first W steps s = 0, 1 …, then constant, or cosine or linear down to
// min_lr_ratio * lr at the last step. With D = max(1, steps - 1 - W) and progress p = min(1, (s - W) / D), s >= W:
//   linear  min + (lr - min) * (1 - p)          cosine  min + (lr - min) * (1 + cos(pi p)) / 2
// So step W, the first after the warm-up, runs at exactly lr, the last (steps - 1) and any beyond it at exactly min; where W leaves a
// single step, that one runs at lr. Pure functions.
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
