// Ops that rearrange elements, for f32, f64, bf16 and f16 inputs of any strides, with
// contiguous results. reshape() shares memory with a contiguous input; every other op copies.
#pragma once
#include <limits>
#include <variant>
#include <vector>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns x with the given shape. The row-major order of the elements stays the same.
Variable reshape(const Variable& x, const Shape& shape);
/// Returns x with its axes reordered: axis i of the result is axis axes[i] of x. Negative axes count from the end.
Variable permute(const Variable& x, const std::vector<int>& axes);
/// Returns every step-th element of [begin, end) along one axis. The step is above 0; steps above 1 use index_select().
Variable slice(const Variable& x, int axis, i64 begin, i64 end, i64 step = 1);

/// A range of one axis, like Python's begin:end:step. Negative bounds count from the end, bounds beyond the axis mean its end, and the step
/// is above 0.
struct Range {
  i64 begin = 0, end = std::numeric_limits<i64>::max(), step = 1;
};
/// Returns x[places[0], places[1], ...]; each place belongs to one of the first axes. A number takes one element and removes its axis; a
/// negative number counts from the end. A Range takes a part of its axis, and `Range{}` all of it.
Variable index(const Variable& x, const std::vector<std::variant<i64, Range>>& places);
/// Joins at least one part along `axis`. The extents of the parts along all other axes must be equal.
Variable concat(const std::vector<Variable>& parts, int axis);

/// Returns x with the axes a and b swapped.
Variable transpose(const Variable& x, int a, int b);
/// Returns parts of x with these extents along `axis`. The extents must sum to the extent of the axis.
std::vector<Variable> split(const Variable& x, const std::vector<i64>& extents, int axis);
/// Joins parts of one shape along a new axis, which becomes axis `axis` of the result.
Variable stack(const std::vector<Variable>& parts, int axis);
/// The numbers of elements that pad() adds before and behind the elements of an axis.
struct Padding {
  i64 before = 0, behind = 0;
};
/// Surrounds x with `value`. `paddings` has one entry for each of the last axes of x; its last entry belongs to the last axis.
Variable pad(const Variable& x, const std::vector<Padding>& paddings, double value = 0);
/// tril() and triu() return x with some elements of each matrix of the last two axes set to zero: tril() those above the diagonal, triu()
/// those below it. Diagonal 0 is the main one, and 1 the one above it.
Variable tril(const Variable& x, i64 diagonal = 0);
Variable triu(const Variable& x, i64 diagonal = 0);

}  // namespace spillway::ops
