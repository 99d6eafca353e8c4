// Softmax, log-softmax and log-sum-exp along an axis, for f32, f64, bf16 and f16. A lane is the elements along the axis at
// fixed other indices. For each lane two numbers are kept, as f32 (f64 for f64): its largest element, and the logarithm of
// the sum of exp(x - largest). Their sum alone would not do, because it would lose the digits that large numbers need. Sums
// are fp64. A CPU sums in ascending order; a GPU sums as a tree over the threads of a warp or thread block, which depends
// on the axis's length. A lane whose elements are all -inf gives NaN, as in PyTorch, except that its log_sum_exp is -inf.
#pragma once
#include "kernels/axis.h"

namespace spillway::kernels {

enum class Softmax { plain, logarithm };

/// Writes two statistics of each lane, its largest element and the logarithm of the sum of exp(x - largest), to kept[outer, 2, inner].
void softmax_statistics(const Tensor& x, const Axis& axis, const Tensor& kept);
/// Computes y = exp(x - largest - log sum), with the two statistics of softmax_statistics()
/// in `kept`. For the log-softmax, computes y = x - largest - log sum.
void softmax(Softmax form, const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& y);
/// Computes dx = p (dy - sum(p dy)), where p is the softmax and sums run over a lane. For the log-softmax, computes dx = dy - p sum(dy).
void softmax_gradient(Softmax form, const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& dy, const Tensor& dx);

/// Computes y[outer, inner] = largest + log sum for each lane, from the two statistics in `kept`.
void log_sum_exp(const Tensor& kept, const Axis& axis, const Tensor& y);
/// Computes dx = p dy, where p is the softmax and dy[outer, inner] is the gradient of log_sum_exp().
void log_sum_exp_gradient(const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& dy, const Tensor& dx);

namespace cuda {
decltype(kernels::softmax_statistics) softmax_statistics;
decltype(kernels::softmax) softmax;
decltype(kernels::softmax_gradient) softmax_gradient;
decltype(kernels::log_sum_exp) log_sum_exp;
decltype(kernels::log_sum_exp_gradient) log_sum_exp_gradient;
}  // namespace cuda

/// Returns the index of a lane's largest element in `kept`. The logarithm lies `inner` elements further.
constexpr i64 kept_of_lane(const Axis& axis, i64 lane) { return lane / axis.inner * 2 * axis.inner + lane % axis.inner; }

/// The two statistics of a lane: its largest element, and the logarithm of the sum of exponentials.
template <class W>
struct SoftmaxLane {
  W largest, log_sum;
  constexpr SoftmaxLane(const W* kept, const Axis& axis, i64 lane)
      : largest(kept[kept_of_lane(axis, lane)]), log_sum(kept[kept_of_lane(axis, lane) + axis.inner]) {}
  constexpr W log_share(W x) const { return x - largest - log_sum; }
};

}  // namespace spillway::kernels
