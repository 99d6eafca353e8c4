// Binds the arithmetic operators, comparisons and indexing of Tensor.
#include <nanobind/stl/variant.h>

#include <variant>

#include "base/error.h"
#include "ops/elementwise/operators.h"
#include "ops/layout/shape.h"
#include "ops/products/matmul.h"
#include "python/module/arrays.h"

namespace spillway::python {
namespace {

// Defines three forms of an operator: a op b, a op number, number op b.
template <class Op>
void both_ways(nb::class_<Array>& tensor, const char* name, const char* reflected, const Op& op) {
  tensor.def(
      name, [op](const Array& a, const Array& b) { return apply(op, a, b); }, nb::is_operator());
  tensor.def(
      name,
      [op](const Array& a, const Operand& other) {
        const double b = other.number;
        return apply([&](const Variable& x) { return op(x, b); }, a);
      },
      nb::is_operator());
  tensor.def(
      reflected,
      [op](const Array& a, const Operand& other) {
        const double b = other.number;
        return apply([&](const Variable& x) { return op(b, x); }, a);
      },
      nb::is_operator());
}

template <class Op>
void comparison(nb::class_<Array>& tensor, const char* name, const Op& op) {
  const std::string signature = std::string("def ") + name + "(self, other: Tensor | float, /) -> Tensor";
  tensor.def(
      name,
      [op](const Array& a, const std::variant<Array, Operand>& other) {
        if (const Array* b = std::get_if<Array>(&other)) return apply(op, a, *b);
        const double number = std::get<Operand>(other).number;
        return apply([&](const Variable& x) -> Variable { return op(x, number); }, a);
      },
      nb::is_operator(), nb::sig(signature.c_str()));
}

// Converts a Python slice of an axis with `extent` elements to a Range of at most that many elements.
ops::Range range_of(const nb::handle& key, i64 extent) {
  Py_ssize_t begin = 0, end = 0, step = 0;
  if (PySlice_Unpack(key.ptr(), &begin, &end, &step) != 0) {
    nb::python_error error;
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw error;
    throw WrongType("index: expected slices of whole numbers, got others: " + words_of(error.value()));
  }
  if (step < 1) throw WrongValue("index: expected slices whose step is above 0, got one whose step is not");
  const Py_ssize_t length = PySlice_AdjustIndices(extent, &begin, &end, step);
  if (length <= 1) return {begin, begin + length, 1};  // for so few elements the step does not matter, and it could overflow
  return {begin, begin + (length - 1) * step + 1, step};
}

std::variant<i64, ops::Range> place_of(const nb::handle& key, i64 extent) {
  if (nb::isinstance<nb::slice>(key)) return range_of(key, extent);
  const Whole place = Whole::read(key);
  if (!place.is_whole()) throw WrongType("index: expected whole numbers, slices and at most one ellipsis (...), got " + kind_of(key));
  const i64 number = place;
  if (number < -extent || number >= extent)
    throw WrongIndex("index: expected the index of one of " + std::to_string(extent) + " elements, got " + std::to_string(number));
  return number;
}

Array picked(const Array& given, const nb::object& key) {
  const Array self = given;
  const nb::tuple keys = nb::isinstance<nb::tuple>(key) ? nb::cast<nb::tuple>(key) : nb::make_tuple(key);
  const auto rank = static_cast<size_t>(self.value().rank());
  size_t named = 0, dots = 0;
  for (const nb::handle one : keys) (one.is(nb::ellipsis()) ? dots : named) += 1;
  if (dots > 1 || named > rank)
    throw WrongIndex("index: expected at most " + std::to_string(rank) + " indices and one ..., got " + std::to_string(named));
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
      "__pow__",
      [](const Array& x, const Operand& other) {
        const double power = other.number;
        return apply([&](const Variable& v) { return ops::pow(v, power); }, x);
      },
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
  // Tensors are hashed by identity, as Python objects are by default, so that
  // they can be in sets and be keys, although == compares element by element.
  tensor.def("__hash__", [](nb::handle self) { return reinterpret_cast<intptr_t>(self.ptr()) >> 4; });
  tensor.def("__getitem__", picked, nb::arg("key"), nb::sig("def __getitem__(self, key: object, /) -> Tensor"));
}

}  // namespace spillway::python
