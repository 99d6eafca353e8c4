// Binds the arithmetic operators of Tensor, and the functions and methods that PyTorch has for them.
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/operators.h"
#include "ops/products/matmul.h"
#include "python/module/arithmetic.h"

namespace spillway::python {
namespace {

// Defines the operator `a op b` and, if `reflected` is set, `b op a` for a `b` that is not a tensor.
template <class Op>
void operation(nb::class_<Array>& tensor, const char* name, const char* reflected, const Op& op) {
  const std::string one = std::string("def ") + name + "(self, other: object, /) -> Tensor";
  tensor.def(
      name, [op](const Array& a, const Operand& b) { return op(side_of(a), side_of(b.given, a)); }, nb::is_operator(),
      nb::sig(one.c_str()));
  if (reflected == nullptr) return;
  const std::string other = std::string("def ") + reflected + "(self, other: object, /) -> Tensor";
  tensor.def(
      reflected, [op](const Array& a, const Operand& b) { return op(side_of(b.given, a), side_of(a)); }, nb::is_operator(),
      nb::sig(other.c_str()));
}

// Defines a function and a method of two arguments. The first argument is a Tensor.
template <class Op>
void function(nb::module_& module, nb::class_<Array>& tensor, const char* name, const Op& op) {
  const auto call = [op](const Given& a, const Operand& b) { return op(side_of(a), side_of(b.given, a)); };
  module.def(name, call, nb::arg("input"), nb::arg("other"));
  tensor.def(name, call, nb::arg("other"));
}

// Defines a function and a method of two tensors, neither of which may be a number.
template <class Op>
void function_of_tensors(nb::module_& module, nb::class_<Array>& tensor, const char* name, const Op& op) {
  const std::string called = name;
  function(module, tensor, name, [op, called](const Side& a, const Side& b) {
    if (b.is_number) throw WrongType(called + ": expected a tensor as `other`, got a number");
    return op(a, b);
  });
}

Side as_bool(const Side& side) {
  if (!side.is_number) return side_of(apply([](const Variable& v) { return as_type(v, DType::boolean); }, side.array));
  Side same = side;
  same.whole = side.real != 0 ? 1 : 0, same.dtype = DType::boolean;
  return same;
}

Array negative(const Array& x) {
  return apply(
      [](const Variable& v) -> Variable {
        if (v.dtype() == DType::boolean) throw WrongValue("-: expected numbers, got a bool tensor: use ~ or logical_not()");
        return is_floating(v.dtype()) ? ops::neg(v) : each_whole(v.value, [](i64 n) { return static_cast<i64>(0 - static_cast<u64>(n)); });
      },
      x);
}

Array inverted(const Array& x) {
  return apply(
      [](const Variable& v) -> Variable {
        if (is_floating(v.dtype())) throw WrongValue("~: expected whole numbers or bools, got " + std::string(to_string(v.dtype())));
        const bool bools = v.dtype() == DType::boolean;
        return each_whole(v.value, [bools](i64 n) { return bools ? static_cast<i64>(n == 0) : ~n; });
      },
      x);
}

// Matrix products of whole numbers are computed in f64, which is exact up to 2^53; larger results are refused.
Variable product_of_whole(const Variable& a, const Variable& b) {
  const auto wide = [](const Variable& v) { return Variable(converted(v.value, DType::f64, Keep::whole)); };
  const Tensor y = ops::matmul(wide(a), wide(b)).value;
  each_wide(y, [](double x) {
    if (std::abs(x) >= 0x1p53) throw WrongValue("@: expected a product of whole numbers below 2^53, got a larger one");
    return x;
  });
  return converted(y, a.dtype());
}

Array product(const Array& a, const Array& b) {
  const DType dtype = a.value().dtype();
  if (dtype != b.value().dtype())
    throw WrongValue("@: expected two tensors of one dtype, got " + std::string(to_string(dtype)) + " and " +
                     std::string(to_string(b.value().dtype())) + ": convert one of them, with x.to(\"" + std::string(to_string(dtype)) +
                     "\")");
  return apply(
      [&](const Variable& x, const Variable& y) {
        return is_floating(dtype) || dtype == DType::boolean ? ops::matmul(x, y) : product_of_whole(x, y);
      },
      a, b);
}

// Returns a + alpha b, or a - alpha b if `minus` is set.
template <bool minus>
Array scaled_sum(const Array& a, const Operand& b, const Operand& alpha) {
  nb::object other = b.given;
  const bool is_one = PyLong_Check(alpha.given.ptr()) && PyLong_AsLong(alpha.given.ptr()) == 1;
  if (!is_one) {
    other = nb::steal(PyNumber_Multiply(other.ptr(), alpha.given.ptr()));
    if (!other.is_valid()) throw nb::python_error();
  }
  return arithmetic(minus ? Pairwise::sub : Pairwise::add, side_of(a), side_of(other, a));
}

// Binds a function of one tensor that has a gradient. Whole numbers are converted to f32.
void smooth(nb::module_& module, nb::class_<Array>& tensor, const char* name, double (*f)(double), double (*slope)(double)) {
  const auto call = [=](const Given& x) {
    return apply(
        [=](const Variable& given) -> Variable {
          const Variable v = is_floating(given.dtype()) ? given : as_type(given, DType::f32);
          const Tensor y = each_wide(v.value, f);
          autograd::Recorder recorder({v}, name);
          const auto kept = recorder.save(v);
          return recorder.output(
              y, [=](autograd::Backward& b) { b.pass(0, (Variable(b.gradient()) * Variable(each_wide(b.saved(kept), slope))).value); });
        },
        x);
  };
  module.def(name, call, nb::arg("input"));
  tensor.def(name, call);
}

// Binds a function of one tensor whose gradient is 0 everywhere.
void steps(nb::module_& module, nb::class_<Array>& tensor, const char* name, double (*f)(double)) {
  const auto call = [=](const Given& x) {
    return apply(
        [=](const Variable& v) -> Variable {
          if (!is_floating(v.dtype())) return each_whole(v.value, [=](i64 n) { return static_cast<i64>(f(static_cast<double>(n))); });
          autograd::Recorder recorder({v}, name);
          return recorder.output(each_wide(v.value, f),
                                 [](autograd::Backward& b) { b.pass(0, zeros(b.gradient().shape(), b.gradient().dtype())); });
        },
        x);
  };
  module.def(name, call, nb::arg("input"));
  tensor.def(name, call);
}

void question(nb::module_& module, nb::class_<Array>& tensor, const char* name, double (*f)(double)) {
  const auto call = [=](const Given& x) {
    return apply(
        [=](const Variable& v) -> Variable {
          const Tensor wide = is_floating(v.dtype()) ? v.value : converted(v.value, DType::f64);
          return converted(each_wide(wide, f), DType::boolean);
        },
        x);
  };
  module.def(name, call, nb::arg("input"));
  tensor.def(name, call);
}

template <class Op>
void alias(nb::module_& module, nb::class_<Array>& tensor, std::initializer_list<const char*> names, const Op& op) {
  for (const char* name : names) {
    module.def(
        name, [op](const Given& x) { return op(x); }, nb::arg("input"));
    tensor.def(name, [op](const Given& x) { return op(x); });
  }
}

void bind_functions(nb::module_& module, nb::class_<Array>& tensor) {
  using std::numbers::ln10, std::numbers::ln2, std::numbers::inv_sqrtpi;
  smooth(
      module, tensor, "sin", [](double x) { return std::sin(x); }, [](double x) { return std::cos(x); });
  smooth(
      module, tensor, "cos", [](double x) { return std::cos(x); }, [](double x) { return -std::sin(x); });
  smooth(
      module, tensor, "erf", [](double x) { return std::erf(x); }, [](double x) { return 2 * inv_sqrtpi * std::exp(-x * x); });
  smooth(
      module, tensor, "log1p", [](double x) { return std::log1p(x); }, [](double x) { return 1 / (1 + x); });
  smooth(
      module, tensor, "expm1", [](double x) { return std::expm1(x); }, [](double x) { return std::exp(x); });
  smooth(
      module, tensor, "log2", [](double x) { return std::log2(x); }, [](double x) { return 1 / (x * ln2); });
  smooth(
      module, tensor, "log10", [](double x) { return std::log10(x); }, [](double x) { return 1 / (x * ln10); });
  steps(module, tensor, "floor", [](double x) { return std::floor(x); });
  steps(module, tensor, "ceil", [](double x) { return std::ceil(x); });
  steps(module, tensor, "round", [](double x) { return std::nearbyint(x); });
  steps(module, tensor, "trunc", [](double x) { return std::trunc(x); });
  steps(module, tensor, "sign", [](double x) { return static_cast<double>((x > 0) - (x < 0)); });
  question(module, tensor, "isnan", [](double x) { return std::isnan(x) ? 1.0 : 0.0; });
  question(module, tensor, "isinf", [](double x) { return std::isinf(x) ? 1.0 : 0.0; });
  question(module, tensor, "isfinite", [](double x) { return std::isfinite(x) ? 1.0 : 0.0; });
  alias(module, tensor, {"neg", "negative"}, negative);
  alias(module, tensor, {"square"}, [](const Array& x) {
    const Array numbers = x.value().dtype() == DType::boolean ? to_type(x, DType::int64) : x;
    return arithmetic(Pairwise::mul, side_of(numbers), side_of(numbers));
  });
  alias(module, tensor, {"reciprocal"}, [](const Array& x) { return quotient_of(side_of(nb::float_(1.0), x), side_of(x)); });
  alias(module, tensor, {"bitwise_not"}, inverted);
  alias(module, tensor, {"logical_not"}, [](const Array& x) { return inverted(as_bool(side_of(x)).array); });
}

}  // namespace

void bind_operators(nb::module_& module, nb::class_<Array>& tensor) {
  const auto of = [](Pairwise op) { return [op](const Side& a, const Side& b) { return arithmetic(op, a, b); }; };
  const auto logic = [](Pairwise op) { return [op](const Side& a, const Side& b) { return arithmetic(op, as_bool(a), as_bool(b)); }; };
  const auto quotient = [](const Side& a, const Side& b) { return quotient_of(a, b); };
  operation(tensor, "__add__", "__radd__", of(Pairwise::add));
  operation(tensor, "__sub__", "__rsub__", of(Pairwise::sub));
  operation(tensor, "__mul__", "__rmul__", of(Pairwise::mul));
  operation(tensor, "__truediv__", "__rtruediv__", quotient);
  operation(tensor, "__floordiv__", "__rfloordiv__", of(Pairwise::floor_div));
  operation(tensor, "__mod__", "__rmod__", of(Pairwise::remainder));
  operation(tensor, "__pow__", "__rpow__", of(Pairwise::pow));
  operation(tensor, "__and__", "__rand__", of(Pairwise::bit_and));
  operation(tensor, "__or__", "__ror__", of(Pairwise::bit_or));
  operation(tensor, "__xor__", "__rxor__", of(Pairwise::bit_xor));
  operation(tensor, "__lshift__", "__rlshift__", of(Pairwise::shift_left));
  operation(tensor, "__rshift__", "__rrshift__", of(Pairwise::shift_right));
  operation(tensor, "__eq__", nullptr, of(Pairwise::eq));
  operation(tensor, "__ne__", nullptr, of(Pairwise::ne));
  operation(tensor, "__lt__", nullptr, of(Pairwise::lt));
  operation(tensor, "__le__", nullptr, of(Pairwise::le));
  operation(tensor, "__gt__", nullptr, of(Pairwise::gt));
  operation(tensor, "__ge__", nullptr, of(Pairwise::ge));
  tensor.def("__neg__", negative, nb::is_operator());
  tensor.def(
      "__abs__", [](nb::handle self) { return self.attr("abs")(); }, nb::sig("def __abs__(self) -> Tensor"));
  tensor.def("__pos__", [](const Array& x) { return x; });
  tensor.def("__invert__", inverted, nb::is_operator());
  tensor.def(
      "__matmul__",
      [](const Array& a, const Operand& b) {
        const Side other = side_of(b.given, a);
        if (other.is_number) throw WrongType("@: expected a tensor, got a number");
        return product(a, other.array);
      },
      nb::is_operator());
  tensor.def(
      "__rmatmul__",
      [](const Array& a, const Operand& b) {
        const Side other = side_of(b.given, a);
        if (other.is_number) throw WrongType("@: expected a tensor, got a number");
        return product(other.array, a);
      },
      nb::is_operator());
  for (const char* name : {"matmul", "mm", "bmm"}) {
    module.def(
        name, [](const Given& a, const Given& b) { return product(a, b); }, nb::arg("input"), nb::arg("other"),
        "[..., M, K] @ [..., K, N] -> [..., M, N].");
    tensor.def(
        name, [](const Given& a, const Given& b) { return product(a, b); }, nb::arg("other"));
  }
  const auto dot = [](const Given& a, const Given& b) {
    if (a.value().rank() != 1 || b.value().rank() != 1)
      throw WrongValue("dot: expected two tensors of one axis, got shapes " + to_string(a.value().shape()) + " and " +
                       to_string(b.value().shape()));
    return product(a, b);
  };
  module.def("dot", dot, nb::arg("input"), nb::arg("other"));
  tensor.def("dot", dot, nb::arg("other"));
  for (const auto& [name, op] : {std::pair{"mul", Pairwise::mul},
                                 {"multiply", Pairwise::mul},
                                 {"pow", Pairwise::pow},
                                 {"floor_divide", Pairwise::floor_div},
                                 {"remainder", Pairwise::remainder},
                                 {"eq", Pairwise::eq},
                                 {"ne", Pairwise::ne},
                                 {"lt", Pairwise::lt},
                                 {"le", Pairwise::le},
                                 {"gt", Pairwise::gt},
                                 {"ge", Pairwise::ge},
                                 {"bitwise_and", Pairwise::bit_and},
                                 {"bitwise_or", Pairwise::bit_or},
                                 {"bitwise_xor", Pairwise::bit_xor}})
    function(module, tensor, name, of(op));
  function_of_tensors(module, tensor, "maximum", of(Pairwise::maximum));
  function_of_tensors(module, tensor, "minimum", of(Pairwise::minimum));
  function(module, tensor, "div", quotient);
  function(module, tensor, "true_divide", quotient);
  function_of_tensors(module, tensor, "logical_and", logic(Pairwise::bit_and));
  function_of_tensors(module, tensor, "logical_or", logic(Pairwise::bit_or));
  function_of_tensors(module, tensor, "logical_xor", logic(Pairwise::bit_xor));
  const auto one = nb::arg("alpha") = 1;
  const auto add = [](const Given& a, const Operand& b, const Operand& alpha) { return scaled_sum<false>(a, b, alpha); };
  const auto sub = [](const Given& a, const Operand& b, const Operand& alpha) { return scaled_sum<true>(a, b, alpha); };
  module.def("add", add, nb::arg("input"), nb::arg("other"), nb::kw_only(), one, "input + alpha * other");
  tensor.def("add", add, nb::arg("other"), nb::kw_only(), one, "self + alpha * other");
  module.def("sub", sub, nb::arg("input"), nb::arg("other"), nb::kw_only(), one, "input - alpha * other");
  tensor.def("sub", sub, nb::arg("other"), nb::kw_only(), one, "self - alpha * other");
  bind_functions(module, tensor);
  // Tensors are hashed by identity, as Python objects are by default, so that
  // they can be in sets and be keys, although == compares element by element.
  tensor.def("__hash__", [](nb::handle self) { return reinterpret_cast<intptr_t>(self.ptr()) >> 4; });
}

}  // namespace spillway::python
