// Arithmetic as it is written, and indexing.
#include <nanobind/stl/variant.h>

#include <variant>

#include "base/error.h"
#include "ops/operators.h"
#include "ops/products/matmul.h"
#include "ops/shape.h"
#include "python/module/arrays.h"

namespace spillway::python {
namespace {

using Number = double;

// a op b, a op number, number op b.
template <class Op>
void both_ways(nb::class_<Array>& tensor, const char* name, const char* reflected, const Op& op) {
  tensor.def(
      name, [op](const Array& a, const Array& b) { return apply(op, a, b); }, nb::is_operator());
  tensor.def(
      name, [op](const Array& a, Number b) { return apply([&](const Variable& x) { return op(x, b); }, a); }, nb::is_operator());
  tensor.def(
      reflected, [op](const Array& a, Number b) { return apply([&](const Variable& x) { return op(b, x); }, a); }, nb::is_operator());
}

template <class Op>
void comparison(nb::class_<Array>& tensor, const char* name, const Op& op) {
  const std::string signature = std::string("def ") + name + "(self, other: Tensor | float, /) -> Tensor";
  tensor.def(
      name,
      [op](const Array& a, const std::variant<Array, Number>& other) {
        if (const Array* b = std::get_if<Array>(&other)) return apply(op, a, *b);
        return apply([&](const Variable& x) -> Variable { return op(x, std::get<Number>(other)); }, a);
      },
      nb::is_operator(), nb::sig(signature.c_str()));
}

std::variant<i64, ops::Range> place_of(const nb::handle& key, i64 extent) {
  if (!nb::isinstance<nb::slice>(key)) {
    i64 number = 0;
    if (!nb::try_cast(key, number)) throw nb::type_error("index: expected whole numbers, slices and one ..., got something else");
    if (number < -extent || number >= extent)
      throw nb::index_error(("index: expected one of " + std::to_string(extent) + " elements, got " + std::to_string(number)).c_str());
    return number;
  }
  const auto [begin, end, step, length] = nb::cast<nb::slice>(key).compute(static_cast<size_t>(extent));
  if (step < 1) throw nb::value_error("index: expected slices whose step is above 0");
  return ops::Range{begin, begin + static_cast<i64>(length) * step, step};
}

Array picked(const Array& self, const nb::object& key) {
  const nb::tuple keys = nb::isinstance<nb::tuple>(key) ? nb::cast<nb::tuple>(key) : nb::make_tuple(key);
  const auto rank = static_cast<size_t>(self.value().rank());
  size_t named = 0, dots = 0;
  for (const nb::handle one : keys) (one.is(nb::ellipsis()) ? dots : named) += 1;
  if (dots > 1 || named > rank)
    throw nb::index_error(
        ("index: expected at most " + std::to_string(rank) + " places and one ..., got " + std::to_string(named)).c_str());
  std::vector<std::variant<i64, ops::Range>> places;
  for (const nb::handle one : keys) {
    if (one.is(nb::ellipsis())) {
      places.insert(places.end(), rank - named, ops::Range{});
    } else {
      places.push_back(place_of(one, self.value().size(static_cast<int>(places.size()))));
    }
  }
  return apply([&](const Variable& x) { return ops::index(x, places); }, self);
}

}  // namespace

void bind_operators(nb::class_<Array>& tensor) {
  const auto add = [](const auto& a, const auto& b) -> Variable { return a + b; };
  const auto sub = [](const auto& a, const auto& b) -> Variable { return a - b; };
  const auto mul = [](const auto& a, const auto& b) -> Variable { return a * b; };
  const auto div = [](const auto& a, const auto& b) -> Variable { return a / b; };
  both_ways(tensor, "__add__", "__radd__", add);
  both_ways(tensor, "__sub__", "__rsub__", sub);
  both_ways(tensor, "__mul__", "__rmul__", mul);
  both_ways(tensor, "__truediv__", "__rtruediv__", div);
  tensor.def(
      "__neg__", [](const Array& x) { return apply([](const Variable& v) { return ops::neg(v); }, x); }, nb::is_operator());
  tensor.def(
      "__pow__", [](const Array& x, Number power) { return apply([&](const Variable& v) { return ops::pow(v, power); }, x); },
      nb::is_operator());
  tensor.def(
      "__pow__",
      [](const Array& a, const Array& b) { return apply([](const Variable& x, const Variable& y) { return ops::pow(x, y); }, a, b); },
      nb::is_operator());
  tensor.def(
      "__matmul__",
      [](const Array& a, const Array& b) { return apply([](const Variable& x, const Variable& y) { return ops::matmul(x, y); }, a, b); },
      nb::is_operator());
  comparison(tensor, "__eq__", [](const Variable& a, const auto& b) -> Variable { return ops::eq(a, b); });
  comparison(tensor, "__ne__", [](const Variable& a, const auto& b) -> Variable { return ops::ne(a, b); });
  comparison(tensor, "__lt__", [](const Variable& a, const auto& b) -> Variable { return ops::lt(a, b); });
  comparison(tensor, "__le__", [](const Variable& a, const auto& b) -> Variable { return ops::le(a, b); });
  comparison(tensor, "__gt__", [](const Variable& a, const auto& b) -> Variable { return ops::gt(a, b); });
  comparison(tensor, "__ge__", [](const Variable& a, const auto& b) -> Variable { return ops::ge(a, b); });
  // As objects, by which they stay in sets and as keys though == is by element.
  tensor.def("__hash__", [](nb::handle self) { return reinterpret_cast<intptr_t>(self.ptr()) >> 4; });
  tensor.def("__getitem__", picked, nb::arg("key"), nb::sig("def __getitem__(self, key: object, /) -> Tensor"));
}

}  // namespace spillway::python
