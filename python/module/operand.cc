#include "python/module/operand.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

bool is_array(const nb::handle& given) noexcept {
  return PyObject_HasAttrString(given.ptr(), "__dlpack__") == 1 || PyObject_HasAttrString(given.ptr(), "__array_interface__") == 1;
}

// NumPy's scalars, such as np.float32(2), count as numbers, as they do in PyTorch.
bool is_number(const nb::handle& given) noexcept {
  if (PyFloat_Check(given.ptr()) || PyLong_Check(given.ptr())) return true;
  if (PyObject_HasAttrString(given.ptr(), "__dlpack__") == 1 || PySequence_Check(given.ptr()) || PyUnicode_Check(given.ptr())) return false;
  return PyIndex_Check(given.ptr()) || PyObject_HasAttrString(given.ptr(), "__float__") == 1;
}

Side number_side(const nb::handle& given) {
  Side side;
  side.is_number = true;
  side.real = Real::read(given);
  const bool is_bool = PyBool_Check(given.ptr());
  const Whole whole = is_bool ? Whole::read(nb::int_(nb::borrow(given))) : Whole::read(given);
  const bool is_float = PyFloat_Check(given.ptr()) || !whole.is_whole();
  if (!is_float) side.whole = whole;
  side.dtype = is_float ? DType::f32 : is_bool ? DType::boolean : DType::int64;
  return side;
}

// Combines the types of two kinds of operands. The first kind decides unless the second is of a higher category (bool below whole numbers
// below floats).
std::optional<DType> combined(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || is_floating(*higher)) return higher;
  if (*higher == DType::boolean || is_floating(*lower)) return wider_of(*higher, *lower);
  return higher;
}

}  // namespace

bool Operand::accepts(const nb::handle& given) noexcept {
  if (given.is_none() || PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr())) return false;
  return nb::isinstance<Array>(given) || PyList_Check(given.ptr()) || PyTuple_Check(given.ptr()) || is_number(given) || is_array(given);
}

Side side_of(const Array& self) {
  Side side;
  side.array = self;
  side.dtype = self.value().dtype();
  return side;
}

Side side_of(const nb::handle& given, const Array& self) {
  if (nb::isinstance<Array>(given)) return side_of(nb::cast<const Array&>(given));
  if (is_number(given)) return number_side(given);
  const nb::object object = nb::borrow(given);
  Tensor read = copy_of(object, "operand");
  if (is_untyped(object) && read.dtype() == DType::f64) {
    const Running running(Device::cpu(), read.bytes() >= kLongBytes, InForward::on_host);
    read = converted(read, DType::f32);
  }
  return side_of(constant(self.ends_with_forward() ? read : moved(read, self.value().device())));
}

int category(DType dtype) { return is_floating(dtype) ? 2 : dtype == DType::boolean ? 0 : 1; }

DType wider_of(DType a, DType b) {
  if (a == b) return a;
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  if (is_floating(a)) return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
  return a == DType::int64 || b == DType::int64 ? DType::int64 : DType::int32;
}

DType common_type(const Side& a, const Side& b) {
  std::optional<DType> by_kind[3];  // the common type of tensors with axes, of zero-dimensional tensors, and of Python's numbers
  for (const Side* side : {&a, &b}) {
    std::optional<DType>& of_kind = by_kind[side->rank() > 0 ? 0 : side->rank() == 0 ? 1 : 2];
    of_kind = of_kind ? wider_of(*of_kind, side->dtype) : side->dtype;
  }
  return *combined(by_kind[0], combined(by_kind[1], by_kind[2]));
}

Variable as_type(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = converted(x.value, dtype);
  if (!is_floating(dtype) || !is_floating(x.dtype())) return y;
  autograd::Recorder recorder({x}, "to");
  return recorder.output(y, [from = x.dtype()](autograd::Backward& b) {
    if (b.needs(0)) b.pass(0, converted(b.gradient(), from));
  });
}

Variable variable_of(const Side& side, const Variable& v, DType dtype) {
  if (!side.is_number) return as_type(v, dtype);
  if (dtype == DType::int64 && side.whole) return tensor_of<i64>(std::span<const i64>(&*side.whole, 1), Shape());
  if (dtype == DType::boolean) return full({}, side.real != 0 ? 1 : 0, dtype);
  return full({}, side.real, dtype);
}

}  // namespace spillway::python
