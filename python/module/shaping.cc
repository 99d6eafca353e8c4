// Operations that move elements.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "ops/shape.h"
#include "python/module/arrays.h"

namespace spillway::python {
namespace {

// reshape(2, 3) and reshape((2, 3)).
std::vector<i64> numbers_in(const nb::args& args) {
  std::vector<i64> numbers;
  if (args.size() == 1 && nb::try_cast(args[0], numbers)) return numbers;
  for (const nb::handle one : args) numbers.push_back(nb::cast<i64>(one));
  return numbers;
}

// One extent of -1 is what is left.
Shape filled(const Tensor& x, std::vector<i64> extents) {
  const auto open = std::ranges::find(extents, -1);
  if (open != extents.end()) {
    i64 others = 1;
    for (const i64 extent : extents) others *= extent == -1 ? 1 : extent;
    *open = others != 0 ? x.elems() / others : 0;
  }
  const Shape shape = shape_of(extents);
  if (shape.elems() != x.elems())
    throw nb::value_error(("reshape: expected a shape of " + std::to_string(x.elems()) + " elements, got " + to_string(shape)).c_str());
  return shape;
}

Array joined(const std::vector<Array>& parts, int axis, Variable (*op)(const std::vector<Variable>&, int)) {
  std::vector<const Array*> all;
  for (const Array& part : parts) all.push_back(&part);
  return apply_to(all, [&](const std::vector<Variable>& v) { return op(v, axis); });
}

}  // namespace

void bind_shaping(nb::module_& module, nb::class_<Array>& tensor) {
  tensor.def(
      "reshape",
      [](const Array& x, const nb::args& shape) {
        const Shape wanted = filled(x.value(), numbers_in(shape));
        return apply([&](const Variable& v) { return ops::reshape(v, wanted); }, x);
      },
      nb::sig("def reshape(self, *shape: int) -> Tensor"), "The same elements in the same order; one extent may be -1.");
  tensor.def(
      "permute",
      [](const Array& x, const nb::args& axes) {
        const std::vector<i64> wide = numbers_in(axes);
        const std::vector<int> order(wide.begin(), wide.end());
        return apply([&](const Variable& v) { return ops::permute(v, order); }, x);
      },
      nb::sig("def permute(self, *axes: int) -> Tensor"), "Axis i of the result is axis axes[i].");
  tensor.def(
      "transpose", [](const Array& x, int a, int b) { return apply([&](const Variable& v) { return ops::transpose(v, a, b); }, x); },
      nb::arg("a"), nb::arg("b"));
  tensor.def_prop_ro(
      "T", [](const Array& x) { return apply([](const Variable& v) { return v.value.rank() < 2 ? v : ops::transpose(v, -2, -1); }, x); },
      "The last two axes change places.");
  tensor.def("flatten", [](const Array& x) { return apply([](const Variable& v) { return ops::reshape(v, Shape{v.value.elems()}); }, x); });
  const auto both = [&](const char* name, const auto& f, const auto&... extra) {
    module.def(name, f, nb::arg("x"), extra...);
    tensor.def(name, f, extra...);
  };
  both(
      "tril", [](const Array& x, i64 diagonal) { return apply([&](const Variable& v) { return ops::tril(v, diagonal); }, x); },
      nb::arg("diagonal") = 0);
  both(
      "triu", [](const Array& x, i64 diagonal) { return apply([&](const Variable& v) { return ops::triu(v, diagonal); }, x); },
      nb::arg("diagonal") = 0);
  module.def(
      "cat", [](const std::vector<Array>& parts, int axis) { return joined(parts, axis, ops::concat); }, nb::arg("tensors"),
      nb::arg("axis") = 0);
  module.def(
      "stack", [](const std::vector<Array>& parts, int axis) { return joined(parts, axis, ops::stack); }, nb::arg("tensors"),
      nb::arg("axis") = 0);
  both(
      "pad",
      [](const Array& x, const std::vector<std::pair<i64, i64>>& paddings, double value) {
        std::vector<ops::Padding> all;
        for (const auto& [before, behind] : paddings) all.push_back({before, behind});
        return apply([&](const Variable& v) { return ops::pad(v, all, value); }, x);
      },
      nb::arg("paddings"), nb::arg("value") = 0.0, "(before, behind) of each of the last axes, the last axis' last.");
}

}  // namespace spillway::python
