#include "ops/rope.h"

#include "base/error.h"
#include "kernels/rope.h"
#include "ops/dense.h"

namespace spillway::ops {

using autograd::Backward;
using autograd::Recorder;

Variable rope(const Variable& in, const Tensor& places, std::span<const double> inverse_frequencies, double attention_scaling) {
  const Variable x = dense(in);
  const Tensor positions = dense(places);
  const bool fits = x.shape().rank() == 4 && positions.elems() == x.shape()[0] * x.shape()[1] &&
                    x.shape()[3] >= 2 * static_cast<i64>(inverse_frequencies.size());
  if (!fits) {
    throw Error(ErrorCode::bug, "[rope] expected x[B, T, H, D], positions[B, T] and at most D/2 frequencies, got " + to_string(x.shape()) +
                                    ", " + to_string(positions.shape()) + " and " + std::to_string(inverse_frequencies.size()));
  }
  const Tensor y = empty(x.shape(), x.dtype(), "rope");
  kernels::rope(x.value, positions, inverse_frequencies, attention_scaling, false, y);
  Recorder r({x});
  const auto kept_positions = r.save(positions);
  const std::vector<double> frequencies(inverse_frequencies.begin(), inverse_frequencies.end());
  return r.output(
      y, [=](Backward& b) { kernels::rope(b.gradient(), b.saved(kept_positions), frequencies, attention_scaling, true, b.target(0)); });
}

}  // namespace spillway::ops
