// Learning rate schedules. W is the number of warm-up steps. During the warm-up, step s = 0, 1, …, W - 1 runs at lr * (s + 1) / (W + 1).
// Then the rate follows the schedule's kind. With min = min_lr_ratio * lr, D = max(1, steps - 1 - W) and progress p = min(1, (s - W) / D),
// s >= W:
//   constant    lr                          polynomial  min + (lr - min) * (1 - p)^power; linear has power 1
//   cosine      min + (lr - min) * (1 + cos(pi p)) / 2
//   wsd         constant, then cosine over the last decay_steps, but not before W ("warm-up, stable, decay", arXiv:2404.06395, as in
//               transformers)
//   step        lr * gamma^floor((s - W) / step_size), PyTorch's StepLR
//   onecycle    no warm-up: PyTorch's OneCycleLR with two phases (arXiv:1708.07120): by half a cosine from lr / 25 to lr at step
//               pct_start * steps - 1, and by another to lr / 250000 at the last step
// So in schedules with a minimum, step W, the first after the warm-up, runs at exactly lr; the last step (steps - 1) and any beyond it run
// at exactly min. If the warm-up leaves a single step, this step runs at lr. Pure functions.
#pragma once
#include "base/types.h"

namespace spillway::optim {

struct Schedule {
  enum class Kind { constant, linear, cosine, polynomial, wsd, step, onecycle } kind = Kind::cosine;
  double learning_rate = 3e-4;
  i64 warmup_steps = 0, steps = 1;
  double min_lr_ratio = 0.1;
  double power = 1;        // the power to which 1 - p is raised by the kind polynomial; above 0
  i64 decay_steps = 1;     // the number of steps over which the kind wsd decays; at least 1
  i64 step_size = 1;       // the number of steps after which the kind step lowers the rate; at least 1
  double gamma = 0.1;      // the factor by which the kind step lowers the rate
  double pct_start = 0.3;  // the fraction of the steps in which the kind onecycle raises the rate; in [0, 1]
};

/// Returns true if the rates of this kind depend on the total number of steps.
inline bool ends(Schedule::Kind kind) { return kind != Schedule::Kind::constant && kind != Schedule::Kind::step; }
/// Returns the learning rate of a step, counted from 0.
double learning_rate(const Schedule& schedule, i64 step);

}  // namespace spillway::optim
