// Softmax, log-softmax and log-sum-exp along an axis: f32, f64, bf16 and f16. A lane is kept as two numbers in wide_dtype: its largest
// element and the logarithm of the sum of exp(x - largest). Adding both would lose the digits that large numbers need. Sums are fp64:
// ascending on a CPU, on a GPU a tree over the threads of a warp or block that depends on the axis's length. A lane that is all -inf gives
// NaN, as in PyTorch, but a log_sum_exp of -inf.
#pragma once
#include "kernels/axis/axis.h"

namespace spillway::kernels {

enum class Softmax { plain, logarithm };

/// Writes the two numbers of each lane of x to kept[outer, 2, inner].
void softmax_statistics(const Tensor& x, const Axis& axis, const Tensor& kept);
/// Computes y = exp(x - largest - log sum), or its logarithm.
void softmax(Softmax form, const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& y);
/// With p the softmax, computes dx = p (dy - sum(p dy)), or for the logarithm dx = dy - p sum(dy).
void softmax_gradient(Softmax form, const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& dy, const Tensor& dx);

/// Computes y[outer, inner] = largest + log sum.
void log_sum_exp(const Tensor& kept, const Axis& axis, const Tensor& y);
/// Computes dx = p dy, with p the softmax.
void log_sum_exp_gradient(const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& dy, const Tensor& dx);

namespace cuda {
decltype(kernels::softmax_statistics) softmax_statistics;
decltype(kernels::softmax) softmax;
decltype(kernels::softmax_gradient) softmax_gradient;
decltype(kernels::log_sum_exp) log_sum_exp;
decltype(kernels::log_sum_exp_gradient) log_sum_exp_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
