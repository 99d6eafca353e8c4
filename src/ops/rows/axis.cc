#include "ops/rows/axis.h"

#include <algorithm>
#include <functional>

#include "kernels/rows/best.h"
#include "kernels/rows/softmax.h"
#include "kernels/rows/spread.h"
#include "ops/dense.h"
#include "ops/layout/scatter.h"
#include "ops/layout/shape.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using kernels::Axis;
using kernels::Best;

int axis_with_elements(const char* op, const Tensor& x, int axis) {
  const int front = axis_from_front(op, x, axis);
  if (x.size(front) < 1) refuse(op, "an axis with at least one element, not axis " + std::to_string(axis), {x});
  return front;
}

Shape with_extent(const Shape& shape, int axis, i64 extent) {
  Shape other = shape;
  other.set(axis, extent);
  return other;
}

Shape shape_of(const std::vector<i64>& extents) { return Shape(std::span<const i64>(extents)); }

Shape without_axis(const Shape& shape, int axis) {
  std::vector<i64> extents;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) extents.push_back(shape[i]);
  }
  return shape_of(extents);
}

// Merges the axes to reduce into one and calls reduce(y, axis), where `axis` is the
// merged axis of y. The function `reduce` returns its result without this axis.
using Reduce = std::function<Variable(const Variable& y, int axis)>;
Variable over_axes(const char* op, const Variable& in, const AxisList& axes, bool keep, const Reduce& reduce) {
  const Variable x = dense(in);
  const int rank = x.shape().rank();
  std::vector<bool> reduced(static_cast<size_t>(rank), axes.empty());
  for (const int axis : axes) {
    const auto front = static_cast<size_t>(axis_from_front(op, x.value, axis));
    if (reduced[front]) refuse(op, "each axis once, not " + std::to_string(axis) + " again", {x.value});
    reduced[front] = true;
  }
  std::vector<int> order;
  std::vector<i64> dropped, kept, merged;
  i64 n = 1;
  for (int i = 0; i < rank; ++i) {
    const bool gone = reduced[static_cast<size_t>(i)];
    kept.push_back(gone ? 1 : x.shape()[i]);
    if (gone) n *= x.shape()[i];
    if (!gone) dropped.push_back(x.shape()[i]), order.push_back(i);
  }
  if (n < 1) refuse(op, "at least one element to reduce", {x.value});
  const Shape to = shape_of(keep ? kept : dropped);
  if (axes.size() == 1) return reshape(reduce(x, axis_from_front(op, x.value, axes[0])), to);
  for (int i = 0; i < rank; ++i) {
    if (reduced[static_cast<size_t>(i)]) order.push_back(i);
  }
  merged = dropped, merged.push_back(n);
  const bool in_order = std::is_sorted(order.begin(), order.end());
  return reshape(reduce(reshape(in_order ? x : permute(x, order), shape_of(merged)), static_cast<int>(merged.size()) - 1), to);
}

TopK best_of(const char* op, Best which, const Variable& x, int axis, i64 k) {
  const Axis along = kernels::axis_of(x.shape(), axis);
  const Shape shape = with_extent(x.shape(), axis, k);
  const Tensor values = empty(shape, x.dtype(), "largest"), index = empty(shape, DType::int32, "positions of the largest");
  kernels::best(which, x.value, along, k, values, index, workspace(kernels::best_workspace_bytes(along, k, x.dtype())));
  Recorder r({x}, op);
  const auto kept = r.save(index);
  return {r.output(values,
                   [=, whole = x.shape()](Backward& b) {
                     const Tensor& dy = b.gradient();
                     b.pass(0, scattered(dy, along, b.saved(kept), kernels::picks_of_each(k, along), whole));
                   }),
          index};
}

Variable extreme(const char* op, Best which, const Variable& x, const AxisList& axes, bool keep) {
  return over_axes(op, x, axes, keep, [=](const Variable& y, int axis) { return best_of(op, which, y, axis, 1).values; });
}

Tensor place_of(const char* op, Best which, const Variable& x, int axis, bool keep) {
  const int at = axis_with_elements(op, x.value, axis);
  const Axis along = kernels::axis_of(x.shape(), at);
  const Tensor index = empty(with_extent(x.shape(), at, 1), DType::int32, "places");
  kernels::best(which, dense(x.value), along, 1, {}, index, workspace(kernels::best_workspace_bytes(along, 1, x.dtype())));
  return keep ? index : index.reshape(without_axis(x.shape(), at));
}

// Returns the two softmax statistics of each lane. A lane is the elements along the axis at one position of all other axes.
Tensor statistics_of(const Tensor& x, const Axis& axis) {
  const Tensor kept = empty({axis.outer, 2, axis.inner}, wide_dtype(x.dtype()), "softmax statistics");
  kernels::softmax_statistics(x, axis, kept);
  return kept;
}

Variable softmax_of(const char* op, kernels::Softmax form, const Variable& in, int axis) {
  const Variable x = dense(in);
  const Axis along = kernels::axis_of(x.shape(), axis_with_elements(op, x.value, axis));
  const Tensor statistics = statistics_of(x.value, along), y = empty(x.shape(), x.dtype(), "softmax");
  kernels::softmax(form, x.value, along, statistics, y);
  Recorder r({x}, op);
  const auto kept_x = r.save(x), kept = r.save(statistics);
  return r.output(y, [=](Backward& b) {
    const Tensor dx = empty(b.gradient().shape(), b.gradient().dtype(), "gradient");
    kernels::softmax_gradient(form, b.saved(kept_x), along, b.saved(kept), b.gradient(), dx);
    b.pass(0, dx);
  });
}

}  // namespace

Variable max(const Variable& x, const AxisList& axes, bool keep) { return extreme("max", Best::largest, x, axes, keep); }
Variable min(const Variable& x, const AxisList& axes, bool keep) { return extreme("min", Best::smallest, x, axes, keep); }
Tensor argmax(const Variable& x, int axis, bool keep) { return place_of("argmax", Best::largest, x, axis, keep); }
Tensor argmin(const Variable& x, int axis, bool keep) { return place_of("argmin", Best::smallest, x, axis, keep); }

Variable var(const Variable& x, const AxisList& axes, double correction, bool keep) {
  return over_axes("var", x, axes, keep, [=](const Variable& y, int axis) {
    const Axis along = kernels::axis_of(y.shape(), axis);
    const Shape lanes = without_axis(y.shape(), axis);
    const Tensor mean = empty(lanes, wide_dtype(y.dtype()), "mean"), out = empty(lanes, y.dtype(), "variance");
    kernels::variance(y.value, along, correction, mean, out);
    Recorder r({y}, "var");
    const auto kept_y = r.save(y), kept_mean = r.save(mean);
    return r.output(out, [=, whole = y.shape()](Backward& b) {
      const Tensor dx = empty(whole, b.gradient().dtype(), "gradient");
      kernels::variance_gradient(b.saved(kept_y), along, correction, b.saved(kept_mean), b.gradient(), dx);
      b.pass(0, dx);
    });
  });
}

Variable logsumexp(const Variable& x, const AxisList& axes, bool keep) {
  return over_axes("logsumexp", x, axes, keep, [=](const Variable& y, int axis) {
    const Axis along = kernels::axis_of(y.shape(), axis);
    const Tensor statistics = statistics_of(y.value, along), out = empty(without_axis(y.shape(), axis), y.dtype(), "logsumexp");
    kernels::log_sum_exp(statistics, along, out);
    Recorder r({y}, "logsumexp");
    const auto kept_y = r.save(y), kept = r.save(statistics);
    return r.output(out, [=, whole = y.shape()](Backward& b) {
      const Tensor dx = empty(whole, b.gradient().dtype(), "gradient");
      kernels::log_sum_exp_gradient(b.saved(kept_y), along, b.saved(kept), b.gradient(), dx);
      b.pass(0, dx);
    });
  });
}

Variable softmax(const Variable& x, int axis) { return softmax_of("softmax", kernels::Softmax::plain, x, axis); }
Variable log_softmax(const Variable& x, int axis) { return softmax_of("log_softmax", kernels::Softmax::logarithm, x, axis); }

Variable cumsum(const Variable& in, int axis) {
  const Variable x = dense(in);
  const Axis along = kernels::axis_of(x.shape(), axis_from_front("cumsum", x.value, axis));
  const Tensor y = empty(x.shape(), x.dtype(), "running sum");
  kernels::running_sum(x.value, along, false, y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) {
    const Tensor dx = empty(b.gradient().shape(), b.gradient().dtype(), "gradient");
    kernels::running_sum(b.gradient(), along, true, dx);
    b.pass(0, dx);
  });
}

TopK topk(const Variable& x, i64 k, int axis) {
  const int at = axis_with_elements("topk", x.value, axis);
  if (k < 1 || k > x.shape()[at]) refuse("topk", "a count from 1 to the length of the axis, not " + std::to_string(k), {x.value});
  return best_of("topk", Best::largest, dense(x), at, k);
}

}  // namespace spillway::ops
