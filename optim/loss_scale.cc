#include "optim/loss_scale.h"

#include <cmath>
#include <limits>

namespace spillway::optim {

LossScale LossScale::after(bool finite, i64 interval) const {
  if (!finite) return {scale / 2, 0};
  if (finite_steps + 1 < interval) return {scale, finite_steps + 1};
  return {2 * scale > std::numeric_limits<float>::max() ? scale : 2 * scale, 0};
}

bool LossScale::is_valid() const {
  int exponent = 0;
  return scale > 0 && scale <= std::numeric_limits<float>::max() && std::frexp(scale, &exponent) == 0.5 && finite_steps >= 0;
}

}  // namespace spillway::optim
