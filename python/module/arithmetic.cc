#include "python/module/arithmetic.h"

#include "base/error.h"
#include "ops/elementwise/operators.h"
#include "ops/stretch.h"

namespace spillway::python {
namespace {

bool is_logic(Pairwise op) { return op >= Pairwise::bit_and && op <= Pairwise::shift_right; }
bool is_comparison(Pairwise op) { return op >= Pairwise::eq; }

Tensor as_bools(const Tensor& mask) { return mask.reinterpret(mask.shape(), DType::boolean); }

// Compares each element of a float tensor with a number.
Tensor compared(Pairwise op, const Variable& x, double number) {
  switch (op) {
    case Pairwise::eq:
      return ops::eq(x, number);
    case Pairwise::ne:
      return ops::ne(x, number);
    case Pairwise::lt:
      return ops::lt(x, number);
    case Pairwise::le:
      return ops::le(x, number);
    case Pairwise::gt:
      return ops::gt(x, number);
    default:
      return ops::ge(x, number);
  }
}

Tensor compared(Pairwise op, const Variable& x, const Variable& y) {
  switch (op) {
    case Pairwise::eq:
      return ops::eq(x, y);
    case Pairwise::ne:
      return ops::ne(x, y);
    case Pairwise::lt:
      return ops::lt(x, y);
    case Pairwise::le:
      return ops::le(x, y);
    case Pairwise::gt:
      return ops::gt(x, y);
    default:
      return ops::ge(x, y);
  }
}

Variable remainder_of(const Variable& x, const Variable& y) {
  if (y.needs_gradient())
    throw Error(ErrorCode::usage, "[remainder] expected a divisor without requires_grad, because it gets no gradient here: detach() it");
  const Tensor rest = remainder_of_quotient(x.value, y.value);
  autograd::Recorder recorder({x}, "remainder");
  return recorder.output(rest, [from = x.shape()](autograd::Backward& b) { b.pass(0, ops::sum_to(b.gradient(), from)); });
}

// Computes x op y for float tensors of one type. If a side is a number, its variable is not used.
Variable of_floats(Pairwise op, const Side& a, const Side& b, const Variable& u, const Variable& v, DType dtype) {
  const Variable x = a.is_number ? Variable() : as_type(u, dtype), y = b.is_number ? Variable() : as_type(v, dtype);
  const auto left = [&] { return a.is_number ? variable_of(a, u, dtype) : x; };
  const auto right = [&] { return b.is_number ? variable_of(b, v, dtype) : y; };
  if (is_comparison(op)) return as_bools(b.is_number ? compared(op, x, b.real) : compared(op, left(), right()));
  switch (op) {
    case Pairwise::add:
      return a.is_number ? a.real + y : b.is_number ? x + b.real : x + y;
    case Pairwise::sub:
      return a.is_number ? a.real - y : b.is_number ? x - b.real : x - y;
    case Pairwise::mul:
      return a.is_number ? a.real * y : b.is_number ? x * b.real : x * y;
    case Pairwise::pow:
      return b.is_number ? ops::pow(x, static_cast<double>(b.real)) : ops::pow(left(), right());
    case Pairwise::maximum:
      return ops::maximum(left(), right());
    case Pairwise::minimum:
      return ops::minimum(left(), right());
    case Pairwise::floor_div:
      return floor_of_quotient(left().value, right().value);
    case Pairwise::remainder:
      return remainder_of(left(), right());
    default:
      throw WrongValue("expected whole numbers or bools for this operator, got " + std::string(to_string(dtype)));
  }
}

}  // namespace

Array arithmetic(Pairwise op, const Side& a, const Side& b) {
  const DType dtype = common_type(a, b);
  if (is_floating(dtype) && is_logic(op))
    throw WrongValue("expected whole numbers or bools for this operator, got " + std::string(to_string(dtype)));
  if (op == Pairwise::sub && (a.dtype == DType::boolean || b.dtype == DType::boolean))
    throw WrongValue("-: expected numbers, got a bool: use ^ or logical_not(), or convert it, with x.long()");
  if (op == Pairwise::pow && !is_floating(dtype) && b.whole && *b.whole < 0)
    throw WrongValue("**: expected an exponent of at least 0 for whole numbers, got a negative one: convert the base, with x.float()");
  return apply(
      [&](const Variable& u, const Variable& v) -> Variable {
        if (is_floating(dtype)) return of_floats(op, a, b, u, v, dtype);
        // A number is first converted to the type of the tensor, with wraparound as in PyTorch. Comparisons are exact: 255 in u8 does not
        // equal -1.
        const auto wide = [&](const Side& side, const Variable& own) {
          const Tensor numbers = variable_of(side, own, DType::int64).value;
          if (side.rank() > 0 || is_comparison(op)) return numbers;
          return converted(pairs_of_whole(Pairwise::add, numbers, zeros({}, DType::int64), dtype), DType::int64);
        };
        return pairs_of_whole(op, wide(a, u), wide(b, v), dtype);
      },
      a.array, b.array);
}

Array quotient_of(const Side& a, const Side& b) {
  const DType common = common_type(a, b), dtype = is_floating(common) ? common : DType::f32;
  return apply(
      [&](const Variable& u, const Variable& v) -> Variable {
        if (a.is_number) return a.real / as_type(v, dtype);
        if (b.is_number) return as_type(u, dtype) / b.real;
        return as_type(u, dtype) / as_type(v, dtype);
      },
      a.array, b.array);
}

}  // namespace spillway::python
