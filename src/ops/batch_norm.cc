#include "ops/batch_norm.h"

#include "kernels/batch_norm.h"
#include "ops/dense.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;

void check(const Variable& x, const Variable& gamma, const Variable& beta, const Tensor& mean, const Tensor& variance) {
  const bool ranks = x.shape().rank() >= 2 && x.value.elems() > 0;
  const Shape wanted = ranks ? Shape{x.shape()[1]} : Shape();
  const DType wide = wide_dtype(x.dtype());
  const bool parameters =
      ranks && gamma.shape() == wanted && beta.shape() == wanted && gamma.dtype() == x.dtype() && beta.dtype() == x.dtype();
  if (parameters && mean.shape() == wanted && variance.shape() == wanted && mean.dtype() == wide && variance.dtype() == wide) return;
  throw Error(ErrorCode::bug, "[batch_norm2d] expected x[N, C, ...], parameters [C] of its dtype and running statistics [C] of " +
                                  std::string(to_string(wide)) + ", got " + to_string(x.shape()) + " and " + to_string(gamma.shape()));
}

Tensor target_if(Backward& b, int input) { return b.needs(input) ? b.target(input) : Tensor(); }

}  // namespace

Variable batch_norm2d(const Variable& in, const Variable& gain, const Variable& bias, const Tensor& running_mean,
                      const Tensor& running_variance, const BatchNormOptions& options) {
  check(in, gain, bias, running_mean, running_variance);
  const Variable x = dense(in), gamma = dense(gain), beta = dense(bias);
  const Tensor y = empty(x.shape(), x.dtype(), "batch norm"),
               statistics = empty({x.shape()[1], 2}, wide_dtype(x.dtype()), "norm statistics");
  const bool training = options.training, advance = options.advance;
  if (training) {
    kernels::batch_statistics(x.value, options.eps, statistics, advance ? running_mean : Tensor(), advance ? running_variance : Tensor(),
                              options.momentum);
  } else {
    kernels::running_statistics(running_mean, running_variance, options.eps, statistics);
  }
  kernels::batch_norm(x.value, gamma.value, beta.value, statistics, y);
  Recorder r({x, gamma, beta});
  const auto kept_x = r.save(x), kept_gamma = r.save(gamma), kept_statistics = r.save(statistics);
  return r.output(y, [=](Backward& b) {
    const Tensor dx = target_if(b, 0), dgamma = target_if(b, 1), dbeta = target_if(b, 2);
    kernels::batch_norm_gradient(b.saved(kept_x), b.saved(kept_gamma), b.saved(kept_statistics), b.gradient(), training, dx, dgamma, dbeta);
  });
}

}  // namespace spillway::ops
