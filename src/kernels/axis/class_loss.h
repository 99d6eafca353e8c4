// Losses of rows x[N, V] against int32 classes, weighted and smoothed; f32, f64, bf16 and f16, contiguous. With l[c] = -log of the softmax
// of the row (of x itself where it is that logarithm): loss = (1 - smoothing) w[t] l[t] + smoothing / V sum_c w[c] l[c], w all 1 without
// weights. A target below 0, or equal to `ignored`, is not counted. Sums over a row are fp64.
#pragma once
#include "kernels/axis/axis.h"

namespace spillway::kernels {

struct ClassLoss {
  i32 ignored = -100;
  double smoothing = 0;
};

/// `statistics` as softmax_statistics makes them of [N, V, 1]; undefined: x is log-probabilities. weights[V], losses[N] and counted[N] (the
/// weight of the target, 0 if it is not counted) in wide_dtype; weights undefined: all 1. Throws Error(data) on a target >= V; on a GPU,
/// which is not waited for, the row's numbers are NaN.
void class_loss(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                const Tensor& losses, const Tensor& counted);
/// dx, of `factor` dlosses[N] (in wide_dtype; undefined: all 1).
void class_loss_gradient(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                         const Tensor& dlosses, double factor, const Tensor& dx);

namespace cuda {
decltype(kernels::class_loss) class_loss;
decltype(kernels::class_loss_gradient) class_loss_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
