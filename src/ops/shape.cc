#include "ops/shape.h"

#include <array>

#include "base/error.h"
#include "kernels/layout.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;

struct Axes {
  std::array<int, Shape::kMaxRank> at{};
  int rank = 0;
};

Tensor permuted(const Tensor& x, const Axes& axes) {
  switch (axes.rank) {
    case 1:
      return x;
    case 2:
      return x.permute({axes.at[0], axes.at[1]});
    case 3:
      return x.permute({axes.at[0], axes.at[1], axes.at[2]});
    case 4:
      return x.permute({axes.at[0], axes.at[1], axes.at[2], axes.at[3]});
    case 5:
      return x.permute({axes.at[0], axes.at[1], axes.at[2], axes.at[3], axes.at[4]});
    case 6:
      return x.permute({axes.at[0], axes.at[1], axes.at[2], axes.at[3], axes.at[4], axes.at[5]});
    default:
      return x;
  }
}

// The axes counted from the front, and the permutation that undoes them.
std::pair<Axes, Axes> axes_of(const Shape& shape, const std::vector<int>& axes) {
  Axes there, back;
  there.rank = back.rank = shape.rank();
  require(static_cast<int>(axes.size()) == shape.rank(), "[permute] expected one entry an axis");
  std::array<bool, Shape::kMaxRank> seen{};
  for (int i = 0; i < shape.rank(); ++i) {
    const int axis = axes[static_cast<size_t>(i)] + (axes[static_cast<size_t>(i)] < 0 ? shape.rank() : 0);
    require(axis >= 0 && axis < shape.rank() && !seen[static_cast<size_t>(axis)], "[permute] expected each axis once");
    seen[static_cast<size_t>(axis)] = true;
    there.at[static_cast<size_t>(i)] = axis;
    back.at[static_cast<size_t>(axis)] = i;
  }
  return {there, back};
}

int from_front(const Shape& shape, int axis) {
  const int front = axis < 0 ? axis + shape.rank() : axis;
  require(front >= 0 && front < shape.rank(), "[shape] the axis is out of range");
  return front;
}

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) {
  Recorder r({x});
  return r.output(x.value.reshape(shape), [from = x.shape()](Backward& b) { b.pass(0, b.gradient().reshape(from)); });
}

Variable permute(const Variable& x, const std::vector<int>& axes) {
  const auto [there, back] = axes_of(x.shape(), axes);
  const Tensor view = permuted(x.value, there), y = empty(view.shape(), x.dtype(), "permuted");
  kernels::copy_view(view, y);
  Recorder r({x});
  return r.output(y, [undo = back](Backward& b) { kernels::copy_view(permuted(b.gradient(), undo), b.target(0)); });
}

Variable slice(const Variable& x, int axis, i64 begin, i64 end) {
  const int front = from_front(x.shape(), axis);
  const Tensor view = x.value.slice(front, begin, end), y = empty(view.shape(), x.dtype(), "slice");
  kernels::copy_view(view, y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) {
    const Tensor dx = b.target(0);
    kernels::fill_zero(dx);
    kernels::copy_view(b.gradient(), dx.slice(front, begin, end));
  });
}

Variable concat(const std::vector<Variable>& parts, int axis) {
  require(!parts.empty(), "[concat] expected at least one part");
  const int front = from_front(parts[0].shape(), axis);
  Shape shape = parts[0].shape();
  i64 total = 0;
  for (const Variable& part : parts) {
    shape.set(front, part.shape().rank() == shape.rank() ? part.shape()[front] : -1);
    require(part.shape() == shape && part.dtype() == parts[0].dtype(), "[concat] expected parts that differ along the axis only");
    total += shape[front];
  }
  shape.set(front, total);
  const Tensor y = empty(shape, parts[0].dtype(), "concat");
  std::vector<i64> begins{0};
  for (const Variable& part : parts) {
    kernels::copy_view(part.value, y.slice(front, begins.back(), begins.back() + part.shape()[front]));
    begins.push_back(begins.back() + part.shape()[front]);
  }
  Recorder r(parts);
  return r.output(y, [=](Backward& b) {
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      if (b.needs(static_cast<int>(i)))
        kernels::copy_view(b.gradient().slice(front, begins[i], begins[i + 1]), b.target(static_cast<int>(i)));
    }
  });
}

}  // namespace spillway::ops
