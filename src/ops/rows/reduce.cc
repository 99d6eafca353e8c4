#include "ops/rows/reduce.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/pointwise.h"
#include "kernels/rows/reduce.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;

// Views x as [outer, n, inner] and returns its sum over n, times `factor`. `out` is the result's shape without the summed axes; `kept` is
// its shape with these axes at size 1.
Variable sum_over(const char* op, const Variable& in, i64 outer, i64 n, i64 inner, double factor, const Shape& out, const Shape& kept) {
  const Variable x = dense(in);
  const Tensor y = empty(out, x.dtype(), "sum");
  kernels::sum_axis(x.value, outer, n, inner, factor, y);
  Recorder r({x}, op);
  return r.output(y, [=](Backward& b) {
    Tensor gradient = b.gradient();
    if (factor != 1) {
      gradient = empty(out, b.gradient().dtype(), "gradient");
      kernels::scale(b.gradient(), factor, gradient);
    }
    kernels::pointwise(kernels::Pointwise::same, {gradient.reshape(kept)}, {}, b.target(0));
  });
}

Variable over_all(const char* op, const Variable& x, double factor) {
  Shape ones = x.shape();
  for (int i = 0; i < ones.rank(); ++i) ones.set(i, 1);
  return sum_over(op, x, 1, x.value.elems(), 1, factor, Shape(), ones);
}

Variable over_axis(const Variable& x, int axis, bool keep, bool mean) {
  const Shape& shape = x.shape();
  const char* op = mean ? "mean" : "sum";
  const int at = axis_from_front(op, x.value, axis);
  i64 outer = 1, inner = 1, extents[Shape::kMaxRank] = {};
  int rank = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != at) extents[rank++] = shape[i];
    if (i < at) outer *= shape[i];
    if (i > at) inner *= shape[i];
  }
  Shape kept = shape;
  kept.set(at, 1);
  const Shape dropped(std::span<const i64>(extents, static_cast<size_t>(rank)));
  return sum_over(op, x, outer, shape[at], inner, mean ? 1.0 / static_cast<double>(shape[at]) : 1.0, keep ? kept : dropped, kept);
}

}  // namespace

Variable sum(const Variable& x) { return over_all("sum", x, 1); }
Variable mean(const Variable& x) { return over_all("mean", x, 1.0 / static_cast<double>(x.value.elems())); }
Variable sum(const Variable& x, int axis, bool keep) { return over_axis(x, axis, keep, false); }
Variable mean(const Variable& x, int axis, bool keep) { return over_axis(x, axis, keep, true); }

}  // namespace spillway::ops
