#include "ops/dropout.h"

#include "base/error.h"
#include "kernels/dropout.h"

namespace spillway::ops {

using autograd::Backward;
using autograd::Recorder;

Variable dropout(const Variable& x, double p, RandomKey key, i64 first_sample) {
  require(p >= 0 && p < 1, "[dropout] expected a probability in [0, 1)");
  if (p == 0) return x;
  const Tensor y = empty(x.shape(), x.dtype(), "dropout");
  kernels::dropout(x.value, p, key, first_sample, y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) { kernels::dropout(b.gradient(), p, key, first_sample, b.target(0)); });
}

}  // namespace spillway::ops
