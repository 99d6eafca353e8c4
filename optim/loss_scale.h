// The loss scale of fp16 training, adjusted as in torch.amp.GradScaler. Gradients are multiplied by a power of two in
// the backward pass, so that small ones do not become zero in f16. A step whose norm is not finite is skipped and halves
// the scale; many consecutive steps with a finite norm double it. The code that applies the gradients divides them by
// the scale again. All ranks see equal norms, and so have equal scales. LossScale is a value type; pure functions.
#pragma once
#include "base/types.h"

namespace spillway::optim {

/// The number of consecutive steps with a finite norm after which the scale is doubled.
constexpr i64 kLossScaleInterval = 2000;

struct LossScale {
  double scale = 65536;  // the loss scale, a power of two
  i64 finite_steps = 0;  // the number of consecutive steps with a finite norm since the scale last changed

  /// Returns the scale of the step that follows a step whose gradients were finite or not. The scale never exceeds the range of fp32, and
  /// may fall below 1.
  LossScale after(bool finite, i64 interval = kLossScaleInterval) const;
  /// Returns true if a run can reach this state: the scale is a power of two in the range of fp32, and finite_steps is not negative.
  bool is_valid() const;
  bool operator==(const LossScale&) const = default;
};

}  // namespace spillway::optim
