// Classification losses of rows x[N, V] against int32 target classes, with class weights and label smoothing, for contiguous f32, f64, bf16
// and f16. Let t be the target of a row, w the class weights (all 1 if there are none), and l[c] = -log(softmax(row))[c], or -x[c] if x
// holds log-probabilities. Then loss = (1 - smoothing) w[t] l[t] + smoothing / V sum_c w[c] l[c]. A row does not contribute if its target
// is below 0 or equal to `ignored`. Sums over a row are fp64.
#pragma once
#include "kernels/axis.h"

namespace spillway::kernels {

struct ClassLoss {
  i32 ignored = -100;
  double smoothing = 0;
};

/// Writes losses[N] and counted[N]; counted is the class weight of each row's target, or 0 if the row does not contribute. losses and
/// counted are in wide_dtype, like weights[V]. Undefined weights are all 1. `statistics` come from softmax_statistics() over x as [N, V,
/// 1]; if they are undefined, x holds log-probabilities. Throws Error(data) if a target is >= V. On a GPU, where the call does not wait,
/// the loss of such a row becomes NaN, and the next wait throws.
void class_loss(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                const Tensor& losses, const Tensor& counted);
/// Writes dx, the gradient of class_loss() for x. dlosses[N] (in wide_dtype; all 1 if undefined) is first multiplied by `factor`.
void class_loss_gradient(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                         const Tensor& dlosses, double factor, const Tensor& dx);

namespace cuda {
decltype(kernels::class_loss) class_loss;
decltype(kernels::class_loss_gradient) class_loss_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
