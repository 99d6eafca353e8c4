// The operand of an arithmetic expression with a tensor that is not the tensor itself: another tensor, an array of NumPy or a similar
// library, a list or a number. The result has the dtype of torch.result_type: tensors with axes come before zero-dimensional tensors, and
// these before Python's numbers. The earlier kind decides the dtype unless a later kind is of a higher category (bool below integers below
// floats).
#pragma once
#include <optional>

#include "python/module/arrays.h"

namespace spillway::python {

/// An argument of an expression, kept as the Python object until the call reads it with side_of().
struct Operand {
  nb::object given;
  /// Returns whether the object can stand in an expression. If not, Python tries the operators of the object's class.
  static bool accepts(const nb::handle& given) noexcept;
};

/// One side of an expression: a tensor or a Python number.
struct Side {
  Array array;               // the tensor; unset for a number
  bool is_number = false;    // whether the side is a Python number
  Real real;                 // the number, read when it is used
  std::optional<i64> whole;  // the number, if it is an int or a bool
  DType dtype = DType::f32;  // type of the array; for a number, the type that it counts as: bool, i64 or f32
  int rank() const { return is_number ? -1 : array.value().rank(); }
};

/// Reads one side of an expression with `self`. An array in host memory is copied to the device of `self`. Must be called under the GIL.
Side side_of(const Array& self);
Side side_of(const nb::handle& given, const Array& self);

/// Returns the type of the result of an expression, as torch.result_type does.
DType common_type(const Side& a, const Side& b);
/// Returns the smallest type to which both convert, as torch.promote_types does.
DType wider_of(DType a, DType b);
/// Returns 0 for bool, 1 for whole numbers and 2 for floats.
int category(DType dtype);

/// Returns x as `dtype`, recorded if both types are floats; x itself if it has this type.
Variable as_type(const Variable& x, DType dtype);
/// Returns a side as a variable of type `dtype`; a number becomes a tensor without axes. `v` is the variable of the side's array.
Variable variable_of(const Side& side, const Variable& v, DType dtype);

}  // namespace spillway::python

namespace nanobind::detail {
template <>
struct type_caster<spillway::python::Operand> {
  NB_TYPE_CASTER(spillway::python::Operand, const_name("object"))
  bool from_python(handle given, uint32_t, cleanup_list*) noexcept {
    if (!spillway::python::Operand::accepts(given)) return false;
    value.given = borrow(given);
    return true;
  }
};
}  // namespace nanobind::detail
