// Reductions, softmax, running sums and top-k along axes, for f32, f64, bf16 and f16 inputs of any strides. Axes count from the
// front, negative ones from the end; an empty list means all axes. `keep` leaves each reduced axis in the shape with size 1.
// How a sum is split and in which order it is added depends on the shape alone (partial sums are fp64). Every op throws
// Error(bug) if the tensor does not have the axis. Every op except cumsum() also throws Error(bug) if the axis has no elements.
#pragma once
#include <vector>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;
using AxisList = std::vector<int>;

/// max() returns the largest element and min() the smallest, or NaN if any
/// element is NaN. The gradient goes to the first of several equal elements.
Variable max(const Variable& x, const AxisList& axes = {}, bool keep = false);
Variable min(const Variable& x, const AxisList& axes = {}, bool keep = false);
/// argmax() returns the position along the axis (int32) of the largest element, argmin() that
/// of the smallest; the first of several equal elements counts. NaN ranks before every number.
Tensor argmax(const Variable& x, int axis, bool keep = false);
Tensor argmin(const Variable& x, int axis, bool keep = false);

/// Returns sum((x - mean)^2) / (n - correction). Correction 1, PyTorch's default, gives the unbiased variance; 0 gives the biased one that
/// norms use.
Variable var(const Variable& x, const AxisList& axes = {}, double correction = 1, bool keep = false);
/// Returns log(sum(exp(x))), computed without overflow.
Variable logsumexp(const Variable& x, const AxisList& axes, bool keep = false);

/// softmax() returns exp(x) / sum(exp(x)) along the axis, and log_softmax() its logarithm. Both compute with x
/// - max(x), so that large inputs lose no digits. Backward recomputes the probabilities from x in wide_dtype.
Variable softmax(const Variable& x, int axis);
Variable log_softmax(const Variable& x, int axis);
/// Returns the running sums y[j] = x[0] + ... + x[j] along the axis.
Variable cumsum(const Variable& x, int axis);

struct TopK {
  Variable values;
  Tensor index;  // the int32 positions of the values along the axis
};
/// Returns the k largest elements along the axis and their positions, largest first.
/// NaN ranks before every number, and equal elements are in order of position.
TopK topk(const Variable& x, i64 k, int axis = -1);

}  // namespace spillway::ops
