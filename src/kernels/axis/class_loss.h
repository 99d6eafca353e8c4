// Classification losses of rows x[N, V] against int32 classes, with class weights and label smoothing: f32, f64, bf16 and f16, contiguous.
// With l[c] = -log(softmax(row))[c] (or -x[c] if x holds log-probabilities) and t the target: loss = (1 - smoothing) w[t] l[t] + smoothing
// / V sum_c w[c] l[c], where w is all 1 without weights. A target below 0 or equal to `ignored` does not contribute. Sums over a row are
// fp64.
#pragma once
#include "kernels/axis/axis.h"

namespace spillway::kernels {

struct ClassLoss {
  i32 ignored = -100;
  double smoothing = 0;
};

/// Writes losses[N] and counted[N], the weight of each target (0 if it is ignored), both in wide_dtype like weights[V]; undefined weights
/// are all 1. `statistics` come from softmax_statistics() over [N, V, 1]; undefined ones mean that x holds log-probabilities. Throws
/// Error(data) on a target >= V; on a GPU, which is not waited for, that row's numbers are NaN.
void class_loss(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                const Tensor& losses, const Tensor& counted);
/// Writes dx from `factor` times dlosses[N] (in wide_dtype; undefined: all 1).
void class_loss_gradient(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                         const Tensor& dlosses, double factor, const Tensor& dx);

namespace cuda {
decltype(kernels::class_loss) class_loss;
decltype(kernels::class_loss_gradient) class_loss_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
