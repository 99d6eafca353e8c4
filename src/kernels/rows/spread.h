// Variances and running sums along an axis, for f32, f64, bf16 and f16. A lane is one line of elements along the axis (axis.h). All sums
// are fp64. The CPU, and a GPU if a lane has at most 1024 elements or there are 2048 lanes or more, add a running sum one element after the
// other. Otherwise a GPU adds in an order that depends only on the lane's length.
#pragma once
#include "kernels/axis.h"

namespace spillway::kernels {

/// Writes the mean of each lane to mean[outer, inner], in wide_dtype, and its variance, y[outer, inner] = sum((x - mean)^2) / (n -
/// correction). If n equals the correction the variance is inf or NaN.
void variance(const Tensor& x, const Axis& axis, double correction, const Tensor& mean, const Tensor& y);
/// Computes the gradient of variance(): dx = 2 (x - mean) dy / (n - correction).
void variance_gradient(const Tensor& x, const Axis& axis, double correction, const Tensor& mean, const Tensor& dy, const Tensor& dx);

/// Computes y[j] = x[0] + ... + x[j] for each lane. If `backwards`, computes y[j] = x[j] + ... + x[n - 1], added from the last element on.
/// Each y is rounded from the fp64 sum.
void running_sum(const Tensor& x, const Axis& axis, bool backwards, const Tensor& y);

namespace cuda {
decltype(kernels::variance) variance;
decltype(kernels::variance_gradient) variance_gradient;
decltype(kernels::running_sum) running_sum;
}  // namespace cuda

}  // namespace spillway::kernels
