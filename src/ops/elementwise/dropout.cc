#include "ops/elementwise/dropout.h"

#include "kernels/elementwise/dropout.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {

using autograd::Backward;
using autograd::Recorder;

Variable dropout(const Variable& in, double p, RandomKey key, i64 first_sample) {
  if (!(p >= 0 && p < 1)) refuse("dropout", "a probability in [0, 1), not " + std::to_string(p), {in.value});
  if (in.shape().rank() == 0) refuse("dropout", "rows x[B, ...]", {in.value});
  if (p == 0) return in;
  const Variable x = dense(in);
  const Tensor y = empty(x.shape(), x.dtype(), "dropout");
  kernels::dropout(x.value, p, key, first_sample, y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) { kernels::dropout(b.gradient(), p, key, first_sample, b.target(0)); });
}

}  // namespace spillway::ops
