#include "ops/rows/norm.h"

#include "kernels/rows/norm.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;

void check(const char* op, const Variable& x, const Variable& parameter) {
  if (x.shape().rank() >= 1 && parameter.shape() == Shape{x.shape()[-1]} && parameter.dtype() == x.dtype() && x.value.elems() > 0) return;
  refuse(op, "x[..., C] and parameters [C] of the same dtype", {x.value, parameter.value});
}

Tensor statistics_for(const Variable& x) { return empty({x.value.elems() / x.shape()[-1], 2}, wide_dtype(x.dtype()), "norm statistics"); }

}  // namespace

Variable layer_norm(const Variable& in, const Variable& gain, const Variable& bias, double eps) {
  const Variable x = dense(in), gamma = dense(gain);
  check("layer_norm", x, gamma);
  const Variable beta = bias.value.defined() ? dense(bias) : Variable(zeros(gamma.shape(), x.dtype(), "no bias"));
  check("layer_norm", x, beta);
  const Tensor y = empty(x.shape(), x.dtype(), "layer norm"), statistics = statistics_for(x);
  kernels::norm(x.value, gamma.value, beta.value, eps, y, statistics);
  Recorder r({x, gamma, beta});
  const auto kept_x = r.save(x), kept_gamma = r.save(gamma), kept_statistics = r.save(statistics);
  return r.output(y, [=](Backward& b) {
    const Tensor rows = b.saved(kept_x);
    const Tensor others = b.needs(0) ? b.take_others(0) : Tensor();
    const Tensor dx = b.target_if_needed(0), dgamma = b.target_if_needed(1), dbeta = b.target_if_needed(2);
    const i64 bytes = kernels::norm_gradient_workspace_bytes(rows.elems() / rows.size(-1), rows.size(-1), rows.dtype());
    kernels::norm_gradient(rows, b.saved(kept_gamma), b.saved(kept_statistics), b.gradient(), true, others, dx, dgamma, dbeta,
                           workspace(bytes));
  });
}

Variable rms_norm(const Variable& in, const Variable& gain, double eps, double gain_offset) {
  const Variable x = dense(in), gamma = dense(gain);
  check("rms_norm", x, gamma);
  const Tensor y = empty(x.shape(), x.dtype(), "rms norm"), statistics = statistics_for(x);
  kernels::norm(x.value, gamma.value, {}, eps, y, statistics, gain_offset);
  Recorder r({x, gamma});
  const auto kept_x = r.save(x), kept_gamma = r.save(gamma), kept_statistics = r.save(statistics);
  return r.output(y, [=](Backward& b) {
    const Tensor rows = b.saved(kept_x);
    const Tensor others = b.needs(0) ? b.take_others(0) : Tensor();
    const Tensor dx = b.target_if_needed(0), dgamma = b.target_if_needed(1);
    const i64 bytes = kernels::norm_gradient_workspace_bytes(rows.elems() / rows.size(-1), rows.size(-1), rows.dtype());
    kernels::norm_gradient(rows, b.saved(kept_gamma), b.saved(kept_statistics), b.gradient(), false, others, dx, dgamma, {},
                           workspace(bytes), gain_offset);
  });
}

}  // namespace spillway::ops
