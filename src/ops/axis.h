// Reductions and orders along axes: f32, f64, bf16 and f16, inputs of any strides. Axes count from the front, negative ones from the end;
// an empty list is all of them. `keep` leaves reduced axes with extent 1. Partition and order of every sum are functions of the shape alone
// (fp64 partial sums). Throws Error(bug) on an axis that the tensor has not, or one without elements.
#pragma once
#include <vector>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;
using AxisList = std::vector<int>;

/// NaN if there is one; the gradient goes to the first of equals.
Variable max(const Variable& x, const AxisList& axes = {}, bool keep = false);
Variable min(const Variable& x, const AxisList& axes = {}, bool keep = false);
/// int32: the place of the first of equals; NaN before all.
Tensor argmax(const Variable& x, int axis, bool keep = false);
Tensor argmin(const Variable& x, int axis, bool keep = false);

/// sum((x - mean)^2) / (n - correction): 1 is the unbiased one, PyTorch's default, 0 that of norms.
Variable var(const Variable& x, const AxisList& axes = {}, double correction = 1, bool keep = false);
/// log(sum(exp(x))) without overflow.
Variable logsumexp(const Variable& x, const AxisList& axes, bool keep = false);

/// Computed from x - max(x), whose digits are kept: backward computes the shares again from x, in wide_dtype.
Variable softmax(const Variable& x, int axis);
Variable log_softmax(const Variable& x, int axis);
/// y[j] = x[0] + ... + x[j]
Variable cumsum(const Variable& x, int axis);

struct TopK {
  Variable values;
  Tensor index;  // int32
};
/// The k largest along the axis, in order, NaN before all, of equals the first.
TopK topk(const Variable& x, i64 k, int axis = -1);

}  // namespace spillway::ops
