#include "ops/layout/shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/accumulate.h"
#include "kernels/elementwise/pointwise.h"
#include "kernels/layout/layout.h"
#include "ops/dense.h"
#include "ops/layout/index.h"
#include "ops/refuse.h"

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

// Returns the axes of a permutation counted from the front, and the inverse permutation.
std::pair<Axes, Axes> axes_of(const Shape& shape, const std::vector<int>& axes) {
  Axes there, back;
  there.rank = back.rank = shape.rank();
  require(static_cast<int>(axes.size()) == shape.rank(), "[permute] expected one entry for each axis");
  std::array<bool, Shape::kMaxRank> seen{};
  for (int i = 0; i < shape.rank(); ++i) {
    const int axis = axes[static_cast<size_t>(i)] + (axes[static_cast<size_t>(i)] < 0 ? shape.rank() : 0);
    require(axis >= 0 && axis < shape.rank() && !seen[static_cast<size_t>(axis)], "[permute] expected each axis exactly once");
    seen[static_cast<size_t>(axis)] = true;
    there.at[static_cast<size_t>(i)] = axis;
    back.at[static_cast<size_t>(axis)] = i;
  }
  return {there, back};
}

// Copies `view` to `to`, which is contiguous. `to` is wider than `view` if it is the gradient of a bf16 or f16 parameter.
void copy_or_widen(const Tensor& view, const Tensor& to) {
  view.dtype() == to.dtype() ? kernels::copy_view(view, to) : kernels::copy(dense(view), to);
}

}  // namespace

Variable reshape(const Variable& in, const Shape& shape) {
  if (in.value.elems() != shape.elems()) refuse("reshape", "as many elements as " + to_string(shape) + " has", {in.value});
  const Variable x = dense(in);
  Recorder r({x});
  return r.output(x.value.reshape(shape), [from = x.shape()](Backward& b) { b.pass(0, b.gradient().reshape(from)); });
}

Variable permute(const Variable& x, const std::vector<int>& axes) {
  const auto [there, back] = axes_of(x.shape(), axes);
  const Tensor view = permuted(x.value, there), y = empty(view.shape(), x.dtype(), "permuted");
  kernels::copy_view(view, y);
  Recorder r({x});
  return r.output(y, [undo = back](Backward& b) { copy_or_widen(permuted(b.gradient(), undo), b.target(0)); });
}

Variable slice(const Variable& x, int axis, i64 begin, i64 end, i64 step) {
  const int front = axis_from_front("slice", x.value, axis);
  if (begin < 0 || begin > end || end > x.shape()[front] || step < 1) {
    const std::string range = "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
    refuse("slice",
           "a range inside axis " + std::to_string(axis) + ", not " + range + (step == 1 ? "" : " in steps of " + std::to_string(step)),
           {x.value});
  }
  if (step > 1) {
    if (end > std::numeric_limits<i32>::max())
      refuse("slice", "a range that ends below 2^31 if the step is above 1, not at " + std::to_string(end), {x.value});
    std::vector<i32> places;
    for (i64 i = begin; i < end; i += step) places.push_back(static_cast<i32>(i));
    return index_select(x, front, tensor_of<i32>(places, {std::ssize(places)}));
  }
  const Tensor view = x.value.slice(front, begin, end), y = empty(view.shape(), x.dtype(), "slice");
  kernels::copy_view(view, y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) {
    const Tensor dx = b.target(0);
    kernels::fill_zero(dx);
    const Tensor inside = dx.slice(front, begin, end);
    if (dx.dtype() == b.gradient().dtype()) return kernels::copy_view(b.gradient(), inside);
    const Tensor wide = empty(inside.shape(), dx.dtype(), "gradient");
    kernels::copy(b.gradient(), wide);
    kernels::copy_view(wide, inside);
  });
}

Variable index(const Variable& x, const std::vector<std::variant<i64, Range>>& places) {
  if (static_cast<int>(places.size()) > x.shape().rank())
    refuse("index", "at most one index for each axis, not " + std::to_string(places.size()), {x.value});
  Variable y = x;
  std::vector<i64> extents;
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    const i64 extent = x.shape()[axis];
    const std::variant<i64, Range> place = axis < std::ssize(places) ? places[static_cast<size_t>(axis)] : Range();
    const std::string where = " of axis " + std::to_string(axis);
    if (const i64* one = std::get_if<i64>(&place)) {
      const i64 at = *one + (*one < 0 ? extent : 0);
      if (at < 0 || at >= extent) refuse("index", "an index inside the range" + where + ", not " + std::to_string(*one), {x.value});
      y = slice(y, axis, at, at + 1);
      continue;
    }
    const Range& range = std::get<Range>(place);
    if (range.step < 1) refuse("index", "steps above 0" + where + ", not " + std::to_string(range.step), {x.value});
    const i64 begin = std::clamp<i64>(range.begin + (range.begin < 0 ? extent : 0), 0, extent);
    const i64 end = std::clamp<i64>(range.end + (range.end < 0 ? extent : 0), begin, extent);
    if (begin > 0 || end < extent || range.step > 1) y = slice(y, axis, begin, end, range.step);
    extents.push_back(y.shape()[axis]);
  }
  return reshape(y, Shape(std::span<const i64>(extents)));
}

Variable concat(const std::vector<Variable>& parts, int axis) {
  require(!parts.empty(), "[concat] expected at least one part");
  const int front = axis_from_front("concat", parts[0].value, axis);
  Shape shape = parts[0].shape();
  i64 total = 0;
  for (const Variable& part : parts) {
    shape.set(front, part.shape().rank() == shape.rank() ? part.shape()[front] : -1);
    if (!(part.shape() == shape) || part.dtype() != parts[0].dtype())
      refuse("concat", "parts that differ along axis " + std::to_string(axis) + " only", {parts[0].value, part.value});
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
      if (b.needs(static_cast<int>(i))) copy_or_widen(b.gradient().slice(front, begins[i], begins[i + 1]), b.target(static_cast<int>(i)));
    }
  });
}

Variable transpose(const Variable& x, int a, int b) {
  std::vector<int> axes(static_cast<size_t>(x.shape().rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[static_cast<size_t>(axis_from_front("transpose", x.value, a))],
            axes[static_cast<size_t>(axis_from_front("transpose", x.value, b))]);
  return permute(x, axes);
}

std::vector<Variable> split(const Variable& x, const std::vector<i64>& extents, int axis) {
  const int front = axis_from_front("split", x.value, axis);
  i64 total = 0;
  bool sane = true;
  for (const i64 extent : extents) total += extent, sane = sane && extent >= 0;
  if (!sane || total != x.shape()[front]) {
    refuse("split", "extents that add up to the extent of axis " + std::to_string(axis) + ", not " + std::to_string(total), {x.value});
  }
  std::vector<Variable> parts;
  i64 begin = 0;
  for (const i64 extent : extents) parts.push_back(slice(x, front, begin, begin + extent)), begin += extent;
  return parts;
}

Variable stack(const std::vector<Variable>& parts, int axis) {
  require(!parts.empty(), "[stack] expected at least one part");
  const Tensor& first = parts[0].value;
  const int rank = first.rank(), front = axis < 0 ? axis + rank + 1 : axis;
  if (front < 0 || front > rank || rank == Shape::kMaxRank)
    refuse("stack", "a new axis within a result of at most 6 axes, not " + std::to_string(axis), {first});
  std::vector<i64> extents(first.shape().extents().begin(), first.shape().extents().end());
  extents.insert(extents.begin() + front, 1);
  std::vector<Variable> raised;
  for (const Variable& part : parts) {
    if (!(part.shape() == first.shape()) || part.dtype() != first.dtype())
      refuse("stack", "parts of the same shape and dtype", {first, part.value});
    raised.push_back(reshape(part, Shape(std::span<const i64>(extents))));
  }
  return concat(raised, front);
}

namespace {

// Returns the part of a padded tensor that holds the unpadded elements, as a view.
Tensor inside(Tensor padded, const std::vector<Padding>& paddings) {
  const int first = padded.rank() - static_cast<int>(paddings.size());
  for (size_t i = 0; i < paddings.size(); ++i) {
    const int axis = first + static_cast<int>(i);
    padded = padded.slice(axis, paddings[i].before, padded.size(axis) - paddings[i].behind);
  }
  return padded;
}

Variable triangle(const char* op, const Variable& x, bool lower, i64 diagonal) {
  if (x.shape().rank() < 2) refuse(op, "matrices", {x.value});
  const Tensor y = empty(x.shape(), x.dtype(), "triangle");
  kernels::triangle(dense(x.value), lower, diagonal, y);
  Recorder r({x}, op);
  return r.output(y, [=](Backward& b) {
    const Tensor dx = empty(b.gradient().shape(), b.gradient().dtype(), "gradient");
    kernels::triangle(b.gradient(), lower, diagonal, dx);
    b.pass(0, dx);
  });
}

}  // namespace

Variable pad(const Variable& x, const std::vector<Padding>& paddings, double value) {
  Shape shape = x.shape();
  bool sane = static_cast<int>(paddings.size()) <= shape.rank();
  for (size_t i = 0; sane && i < paddings.size(); ++i) {
    const Padding& p = paddings[paddings.size() - 1 - i];
    const int axis = -1 - static_cast<int>(i);
    sane = p.before >= 0 && p.behind >= 0;
    shape.set(axis, shape[axis] + p.before + p.behind);
  }
  if (!sane) refuse("pad", "at most one padding for each axis, none of them below 0", {x.value});
  const Tensor y = empty(shape, x.dtype(), "padded");
  kernels::pointwise(kernels::Pointwise::fill, {}, {value, 0}, y);
  kernels::copy_view(x.value, inside(y, paddings));
  Recorder r({x});
  if (!std::isfinite(value)) r.expect_infinities();
  return r.output(y, [=](Backward& b) { b.pass(0, dense(inside(b.gradient(), paddings))); });
}

Variable tril(const Variable& x, i64 diagonal) { return triangle("tril", x, true, diagonal); }
Variable triu(const Variable& x, i64 diagonal) { return triangle("triu", x, false, diagonal); }

}  // namespace spillway::ops
