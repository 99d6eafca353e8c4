#include "ops/batch_norm.h"

#include "kernels/batch_norm.h"
#include "kernels/reduce.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;

bool fit(const Variable& x, const Variable& gamma, const Variable& beta) {
  if (x.shape().rank() < 2 || x.value.elems() == 0) return false;
  const Shape wanted{x.shape()[1]};
  return gamma.shape() == wanted && beta.shape() == wanted && gamma.dtype() == x.dtype() && beta.dtype() == x.dtype();
}

void check(const Variable& x, const Variable& gamma, const Variable& beta, const Tensor& mean, const Tensor& variance) {
  const DType wide = wide_dtype(x.dtype());
  const bool parameters = fit(x, gamma, beta);
  if (parameters && mean.shape() == gamma.shape() && variance.shape() == gamma.shape() && mean.dtype() == wide && variance.dtype() == wide)
    return;
  refuse("batch_norm2d", "x[N, C, ...], parameters [C] of its dtype and running statistics [C] of " + std::string(to_string(wide)),
         {x.value, gamma.value, beta.value, mean, variance});
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

namespace {

Variable of_groups(const char* op, const Variable& in, i64 groups, const Variable& gain, const Variable& bias, double eps) {
  const bool fits = fit(in, gain, bias) && groups >= 1 && in.shape()[1] % groups == 0;
  if (!fits || in.value.elems() == in.shape()[0] * groups) {
    refuse(
        op,
        "x[N, C, ...], parameters [C] of its dtype and groups that divide C and have more than one element, not " + std::to_string(groups),
        {in.value, gain.value, bias.value});
  }
  const Variable x = dense(in), gamma = dense(gain), beta = dense(bias);
  const i64 images = x.shape()[0], channels = x.shape()[1], all = images * groups;
  const Tensor y = empty(x.shape(), x.dtype(), "group norm"), statistics = empty({all, 2}, wide_dtype(x.dtype()), "norm statistics");
  kernels::batch_statistics(x.value.reshape({1, all, x.value.elems() / all}), eps, statistics, {}, {}, 0);
  kernels::group_norm(x.value, gamma.value, beta.value, statistics, y);
  Recorder r({x, gamma, beta});
  const auto kept_x = r.save(x), kept_gamma = r.save(gamma), kept_statistics = r.save(statistics);
  return r.output(y, [=](Backward& b) {
    const auto each_image = [&](int input) {
      return b.needs(input) ? empty({images, channels}, wide_dtype(b.gradient().dtype()), "gradient of each image") : Tensor();
    };
    const Tensor dgamma = each_image(1), dbeta = each_image(2);
    kernels::group_norm_gradient(b.saved(kept_x), b.saved(kept_gamma), b.saved(kept_statistics), b.gradient(), target_if(b, 0), dgamma,
                                 dbeta);
    if (b.needs(1)) kernels::sum_axis(dgamma, 1, images, channels, 1, b.target(1));
    if (b.needs(2)) kernels::sum_axis(dbeta, 1, images, channels, 1, b.target(2));
  });
}

}  // namespace

Variable group_norm(const Variable& x, i64 groups, const Variable& gamma, const Variable& beta, double eps) {
  return of_groups("group_norm", x, groups, gamma, beta, eps);
}

Variable instance_norm(const Variable& x, const Variable& gamma, const Variable& beta, double eps) {
  return of_groups("instance_norm", x, x.shape().rank() < 2 ? 1 : x.shape()[1], gamma, beta, eps);
}

}  // namespace spillway::ops
