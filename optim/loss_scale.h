// The loss scale of fp16 training, as torch.amp.GradScaler moves it: what flows back is multiplied by a power of two, so that small
// gradients are no zeros in f16; a step whose norm is not finite is skipped and halves it, many finite ones in a row double it. Whoever
// applies the gradients divides them again. All ranks see the same norms, and so have the same scale. A value; pure functions.
#pragma once
#include "base/types.h"

namespace spillway::optim {

/// Finite steps in a row that double the scale.
constexpr i64 kLossScaleInterval = 2000;

struct LossScale {
  double scale = 65536;  // a power of two
  i64 finite_steps = 0;  // in a row, since it last changed

  /// Of the next step. It stays among the numbers of fp32 at the upper end, and may fall below 1.
  LossScale after(bool finite, i64 interval = kLossScaleInterval) const;
  /// Whether it is one that steps may lead to.
  bool is_valid() const;
  bool operator==(const LossScale&) const = default;
};

}  // namespace spillway::optim
