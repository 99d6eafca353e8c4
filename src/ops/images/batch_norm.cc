#include "ops/images/batch_norm.h"

#include "kernels/accumulate.h"
#include "kernels/images/batch_norm.h"
#include "kernels/rows/reduce.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

bool fit(const Variable& x, const Variable& gamma, const Variable& beta) {
  if (x.shape().rank() < 2 || x.value.elems() == 0) return false;
  const Shape wanted{x.shape()[1]};
  return gamma.shape() == wanted && beta.shape() == wanted && gamma.dtype() == x.dtype() && beta.dtype() == x.dtype();
}

void check(const Variable& x, const Variable& gamma, const Variable& beta, const Variable& mean, const Variable& variance) {
  if (fit(x, gamma, beta) && fit(x, mean, variance)) return;
  refuse("batch_norm2d", "x[N, C, ...] and parameters and running statistics [C] of the dtype of x",
         {x.value, gamma.value, beta.value, mean.value, variance.value});
}

Tensor widened(const Tensor& x) {
  const DType wide = wide_dtype(x.dtype());
  if (x.dtype() == wide) return x;
  const Tensor to = empty(x.shape(), wide, "norm statistics");
  kernels::copy(x, to);
  return to;
}

}  // namespace

Variable batch_norm2d(const Variable& in, const Variable& gain, const Variable& bias, const Variable& running_mean,
                      const Variable& running_variance, const BatchNormOptions& options) {
  check(in, gain, bias, running_mean, running_variance);
  const Variable x = dense(in), gamma = dense(gain), beta = dense(bias);
  const DType wide = wide_dtype(x.dtype());
  const Tensor y = empty(x.shape(), x.dtype(), "batch norm"), statistics = empty({x.shape()[1], 2}, wide, "norm statistics");
  const bool training = options.training, follow = training && running_mean.needs_gradient() && running_variance.needs_gradient();
  const Tensor mean = follow ? empty(gamma.shape(), wide, "norm statistics") : Tensor(),
               variance = follow ? empty(gamma.shape(), wide, "norm statistics") : Tensor();
  if (training) {
    kernels::batch_statistics(x.value, options.eps, statistics, mean, variance);
  } else {
    kernels::running_statistics(widened(dense(running_mean).value), widened(dense(running_variance).value), options.eps, statistics);
  }
  kernels::batch_norm(x.value, gamma.value, beta.value, statistics, y);
  Recorder r({x, gamma, beta, follow ? running_mean : Variable(), follow ? running_variance : Variable()});
  const auto kept_x = r.save(x), kept_gamma = r.save(gamma), kept_statistics = r.save(statistics);
  const auto kept_mean = follow ? r.save(mean) : SavedTensor(), kept_variance = follow ? r.save(variance) : SavedTensor();
  return r.output(y, [=](Backward& b) {
    if (b.needs(3)) b.pass(3, b.saved(kept_mean));
    if (b.needs(4)) b.pass(4, b.saved(kept_variance));
    const Tensor dx = b.target_if_needed(0), dgamma = b.target_if_needed(1), dbeta = b.target_if_needed(2);
    if (!dx.defined() && !dgamma.defined() && !dbeta.defined()) return;
    kernels::batch_norm_gradient(b.saved(kept_x), b.saved(kept_gamma), b.saved(kept_statistics), b.gradient(), training, dx, dgamma, dbeta);
  });
}

namespace {

Variable of_groups(const char* op, const Variable& in, i64 groups, const Variable& gain, const Variable& bias, double eps) {
  const bool fits = fit(in, gain, bias) && groups >= 1 && in.shape()[1] % groups == 0;
  if (!fits || in.value.elems() == in.shape()[0] * groups) {
    refuse(op,
           "x[N, C, ...], parameters [C] of the dtype of x, and a number of groups that divides C and leaves each group more than one "
           "element, not " +
               std::to_string(groups),
           {in.value, gain.value, bias.value});
  }
  const Variable x = dense(in), gamma = dense(gain), beta = dense(bias);
  const i64 images = x.shape()[0], channels = x.shape()[1], all = images * groups;
  const Tensor y = empty(x.shape(), x.dtype(), "group norm"), statistics = empty({all, 2}, wide_dtype(x.dtype()), "norm statistics");
  kernels::batch_statistics(x.value.reshape({1, all, x.value.elems() / all}), eps, statistics);
  kernels::group_norm(x.value, gamma.value, beta.value, statistics, y);
  Recorder r({x, gamma, beta});
  const auto kept_x = r.save(x), kept_gamma = r.save(gamma), kept_statistics = r.save(statistics);
  return r.output(y, [=](Backward& b) {
    const auto each_image = [&](int input) {
      return b.needs(input) ? empty({images, channels}, wide_dtype(b.gradient().dtype()), "parameter gradient of each image") : Tensor();
    };
    const Tensor dgamma = each_image(1), dbeta = each_image(2);
    kernels::group_norm_gradient(b.saved(kept_x), b.saved(kept_gamma), b.saved(kept_statistics), b.gradient(), b.target_if_needed(0),
                                 dgamma, dbeta);
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
