// Ops that move elements: f32, f64, bf16 and f16, inputs of any strides, contiguous results. reshape shares memory with a contiguous
// input; all else is written anew.
#pragma once
#include <limits>
#include <variant>
#include <vector>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// The same elements in the same order.
Variable reshape(const Variable& x, const Shape& shape);
/// Axis i of the result is axis axes[i] of x; negative axes count from the end.
Variable permute(const Variable& x, const std::vector<int>& axes);
/// Every step-th of [begin, end) of one axis; step above 0. Steps above 1 are an index_select().
Variable slice(const Variable& x, int axis, i64 begin, i64 end, i64 step = 1);

/// Of one axis, as Python's begin:end:step: negative bounds count from the end, and what lies beyond the axis is its end. Step above 0.
struct Range {
  i64 begin = 0, end = std::numeric_limits<i64>::max(), step = 1;
};
/// x[places[0], places[1], ...] of the first axes: a number takes one element of its axis, which goes; a Range some; `Range{}` all. A
/// negative number counts from the end.
Variable index(const Variable& x, const std::vector<std::variant<i64, Range>>& places);
/// Along `axis`; the other extents are equal. At least one part.
Variable concat(const std::vector<Variable>& parts, int axis);

/// Two axes change places.
Variable transpose(const Variable& x, int a, int b);
/// Parts of these extents along `axis`, which sum to its own.
std::vector<Variable> split(const Variable& x, const std::vector<i64>& extents, int axis);
/// Parts of one shape along a new axis, which is the axis `axis` of the result.
Variable stack(const std::vector<Variable>& parts, int axis);
/// What is put before and behind an axis.
struct Padding {
  i64 before = 0, behind = 0;
};
/// `value` around x: one entry for each of the last axes, the last axis' last.
Variable pad(const Variable& x, const std::vector<Padding>& paddings, double value = 0);
/// Of the matrices of the last two axes what is on and below (above) the diagonal, zero elsewhere; diagonal 1 is the one above the main
/// one.
Variable tril(const Variable& x, i64 diagonal = 0);
Variable triu(const Variable& x, i64 diagonal = 0);

}  // namespace spillway::ops
