// Binds the operations that move elements without computing: reshape, permute, pad and others.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "ops/layout/shape.h"
#include "python/module/arrays.h"

namespace spillway::python {
namespace {

// Reads the numbers of both reshape(2, 3) and reshape((2, 3)).
Wholes numbers_in(const nb::args& args) {
  if (args.size() != 1) return Wholes::read(args);
  return Wholes::read(args[0]);
}

// Replaces an extent of -1 by the extent that makes the number of elements match.
Shape filled(const Tensor& x, std::vector<i64> extents) {
  const auto open = std::ranges::find(extents, -1);
  if (open != extents.end()) {
    *open = 1;
    const i64 others = shape_of(extents).elems();
    *open = others != 0 ? x.elems() / others : 0;
  }
  const Shape shape = shape_of(extents);
  if (shape.elems() != x.elems())
    throw WrongValue("reshape: expected a shape of " + std::to_string(x.elems()) + " elements, got " + to_string(shape));
  return shape;
}

// The bound that stands for the end of an axis: beyond every extent, but so small that adding it to an extent does not overflow 64 bits.
constexpr i64 kFar = i64{1} << 59;

std::vector<ops::Padding> paddings_in(const nb::object& given) {
  const char* const expected = "paddings: expected pairs (before, after) in a list, got something else";
  std::vector<ops::Padding> all;
  for (const nb::handle one : iterator_of(given, expected)) {
    const std::vector<i64> pair = Wholes::read(one).all();
    if (pair.size() != 2) throw WrongType(expected);
    all.push_back({std::min(pair[0], kFar), std::min(pair[1], kFar)});
    if (all.size() > Shape::kMaxRank) throw WrongValue("paddings: expected at most 6 pairs, got more");
  }
  return all;
}

Array joined(const std::vector<Array>& parts, const Whole& at, Variable (*op)(const std::vector<Variable>&, int)) {
  const int axis = at.small();
  std::vector<const Array*> all;
  for (const Array& part : parts) all.push_back(&part);
  return apply_to(all, [&](const std::vector<Variable>& v) { return op(v, axis); });
}

}  // namespace

void bind_shaping(nb::module_& module, nb::class_<Array>& tensor) {
  tensor.def(
      "reshape",
      [](const Given& x, const nb::args& shape) {
        const Shape wanted = filled(x.value(), numbers_in(shape).all());
        return apply([&](const Variable& v) { return ops::reshape(v, wanted); }, x);
      },
      nb::sig("def reshape(self, *shape: int) -> Tensor"), "The same elements in the same order; one extent may be -1.");
  tensor.def(
      "permute",
      [](const Given& x, const nb::args& axes) {
        const std::vector<int> order = numbers_in(axes).small();
        return apply([&](const Variable& v) { return ops::permute(v, order); }, x);
      },
      nb::sig("def permute(self, *axes: int) -> Tensor"), "Axis i of the result is axis axes[i].");
  tensor.def(
      "transpose",
      [](const Given& x, const Whole& first, const Whole& second) {
        const int a = first.small(), b = second.small();
        return apply([&](const Variable& v) { return ops::transpose(v, a, b); }, x);
      },
      nb::arg("a"), nb::arg("b"));
  tensor.def_prop_ro(
      "T", [](const Given& x) { return apply([](const Variable& v) { return v.value.rank() < 2 ? v : ops::transpose(v, -2, -1); }, x); },
      "Swaps the last two axes.");
  tensor.def("flatten", [](const Given& x) { return apply([](const Variable& v) { return ops::reshape(v, Shape{v.value.elems()}); }, x); });
  const auto both = [&](const char* name, const auto& f, const auto&... extra) {
    module.def(name, f, nb::arg("x"), extra...);
    tensor.def(name, f, extra...);
  };
  both(
      "tril",
      [](const Given& x, const Whole& diagonal) {
        const i64 at = std::clamp<i64>(diagonal, -kFar, kFar);
        return apply([&](const Variable& v) { return ops::tril(v, at); }, x);
      },
      nb::arg("diagonal") = 0);
  both(
      "triu",
      [](const Given& x, const Whole& diagonal) {
        const i64 at = std::clamp<i64>(diagonal, -kFar, kFar);
        return apply([&](const Variable& v) { return ops::triu(v, at); }, x);
      },
      nb::arg("diagonal") = 0);
  module.def(
      "cat", [](const nb::object& parts, const Whole& axis) { return joined(arrays_in(parts, "tensors"), axis, ops::concat); },
      nb::arg("tensors"), nb::arg("axis") = 0, nb::sig("def cat(tensors: collections.abc.Iterable[Tensor], axis: int = 0) -> Tensor"));
  module.def(
      "stack", [](const nb::object& parts, const Whole& axis) { return joined(arrays_in(parts, "tensors"), axis, ops::stack); },
      nb::arg("tensors"), nb::arg("axis") = 0, nb::sig("def stack(tensors: collections.abc.Iterable[Tensor], axis: int = 0) -> Tensor"));
  both(
      "pad",
      [](const Given& x, const nb::object& paddings, const Real& fill) {
        const std::vector<ops::Padding> all = paddings_in(paddings);
        const double value = fill;
        return apply([&](const Variable& v) { return ops::pad(v, all, value); }, x);
      },
      nb::arg("paddings"), nb::arg("value") = 0.0,
      "Each pair (before, after) pads one of the last axes; the last pair pads the last axis.");
}

}  // namespace spillway::python
