// Defines Axis, one axis of a contiguous tensor, which is seen as [outer, n, inner]. A lane is one line of elements along the axis: the n
// elements that share one (outer, inner). A result with one number per lane has the shape [outer, inner].
#pragma once
#include "base/error.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

struct Axis {
  i64 outer, n, inner;
  constexpr i64 lanes() const { return outer * inner; }
  constexpr i64 elems() const { return lanes() * n; }
};

/// Returns axis `at` of a tensor of this shape. Axes are counted from 0.
inline Axis axis_of(const Shape& shape, int at) {
  Axis axis{1, shape[at], 1};
  for (int i = 0; i < shape.rank(); ++i) (i < at ? axis.outer : i > at ? axis.inner : axis.n) *= i == at ? 1 : shape[i];
  return axis;
}

/// Returns the index of a lane's first element. Successive elements of the lane are `inner` apart.
constexpr i64 first_of_lane(const Axis& axis, i64 lane) { return lane / axis.inner * axis.n * axis.inner + lane % axis.inner; }

inline void require_axis(const Axis& axis, const Tensor& x) {
  require(x.is_contiguous() && x.elems() == axis.elems(), "[axis] expected a contiguous view of outer x n x inner elements");
}

}  // namespace spillway::kernels
