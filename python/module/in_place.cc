#include "python/module/in_place.h"

#include <nanobind/stl/optional.h>

#include <limits>

#include "autograd/tape.h"
#include "kernels/layout/layout.h"
#include "ops/elementwise/pointwise.h"
#include "ops/stretch.h"
#include "python/module/arithmetic.h"
#include "python/module/elements.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

bool is_recorded(const Array& array) { return array.graph && !array.graph->over(); }

// Returns the values, broadcast, as `dtype`.
Array fitting(const Array& values, const Shape& shape, DType dtype) {
  if (values.value().shape() == shape && values.value().dtype() == dtype) return values;
  return apply(
      [&](const Variable& v) -> Variable {
        const Variable same = as_type(v, dtype);
        if (same.shape() == shape) return same;
        autograd::Recorder recorder({same}, "expand");
        return recorder.output(stretched(same.value, shape),
                               [from = same.shape()](autograd::Backward& b) { b.pass(0, ops::sum_to(b.gradient(), from)); });
      },
      values);
}

Array& filled(Array& self, const Operand& value, const char* name) {
  check_writable(self, name);
  const Side side = side_of(value.given, self);
  if (!side.is_number && side.array.value().rank() != 0)
    throw WrongValue(std::string(name) + ": expected one number, got a tensor of shape " + to_string(side.array.value().shape()));
  const DType dtype = self.value().dtype();
  const Array filling = apply([&](const Variable&, const Variable& v) { return variable_of(side, v, dtype); }, self, side.array);
  write(self, filling, name, true);
  return self;
}

// Defines the method x.name_(other) and the operator that belongs to it, if there is one. op(x, other) computes the new values.
template <class Op>
void both(nb::class_<Array>& tensor, const char* method, const char* operation, const Op& op) {
  const std::string name = method;
  tensor.def(
      method,
      [op, name](Array& self, const Operand& other) -> Array& {
        check_writable(self, name);
        const Array now = before_write(self);
        write(self, op(side_of(now), side_of(other.given, self)), name);
        return self;
      },
      nb::arg("other"), nb::rv_policy::reference);
  if (operation == nullptr) return;
  tensor.def(
      operation,
      [op, name](nb::handle object, const Operand& other) -> nb::object {
        Array& self = nb::cast<Array&>(object);
        const Array now = before_write(self);
        const Array values = op(side_of(now), side_of(other.given, self));
        // Python executes x[::2] += 1 by assigning the result of this operator to x[::2], so returning the new values is enough.
        if (self.is_copy || self.ends_with_forward()) return nb::cast(values);
        check_writable(self, name);
        write(self, values, name);
        return nb::borrow(object);
      },
      nb::is_operator());
}

void written_as(nb::class_<Array>& tensor, const char* method, const char* plain) {
  const std::string name = method, of = plain;
  tensor.def(
      method,
      [name, of](Array& self, const nb::args& args, const nb::kwargs& named) -> Array& {
        check_writable(self, name);
        const nb::object values = nb::cast(before_write(self)).attr(of.c_str())(*args, **named);
        write(self, nb::cast<const Array&>(values), name);
        return self;
      },
      nb::rv_policy::reference);
}

}  // namespace

void check_writable(const Array& self, const std::string& name) {
  if (self.ends_with_forward())
    throw Error(ErrorCode::usage, "[" + name +
                                      "] expected a tensor outside of a block's forward, got one in it, whose values backward and the "
                                      "run's other micro-batches read: compute a new tensor");
  if (self.is_copy)
    throw Error(ErrorCode::usage, "[" + name +
                                      "] expected a tensor with memory of its own, got a copy of elements that PyTorch would share: write "
                                      "x[key] = values to change the tensor that it was taken from, or call clone() to change the copy");
  if (self.leaf && self.leaf->wants() && recording())
    throw Error(ErrorCode::usage, "[" + name +
                                      "] a leaf Variable that requires grad is being used in an in-place operation: expected a tensor "
                                      "computed from it, or the block of a no_grad()");
}

Array before_write(const Array& self) {
  if (!is_recorded(self) || !recording()) return self;
  const Tensor now = self.value();
  const Running running(now.device(), now.bytes() >= kLongBytes);
  Array copy = self;
  copy.v = Variable(converted(now, now.dtype()), self.v.tape, self.v.slot);
  return copy;
}

void write(Array& self, const Array& values, const std::string& name, bool any_type) {
  const Tensor to = self.value();
  const Tensor given = values.value();
  bool fits = given.rank() <= to.rank();
  for (int i = 1; fits && i <= given.rank(); ++i) fits = given.size(-i) == to.size(-i) || given.size(-i) == 1;
  if (!fits)
    throw WrongValue(name + ": expected a result of shape " + to_string(to.shape()) + ", which the tensor has, got " +
                     to_string(given.shape()));
  if (!any_type && category(given.dtype()) > category(to.dtype()))
    throw WrongValue(name + ": result type " + std::string(to_string(given.dtype())) + " can't be cast to the desired output type " +
                     std::string(to_string(to.dtype())) + ": expected a result that the tensor can hold: convert it first, with x.to(\"" +
                     std::string(to_string(given.dtype())) + "\")");
  const Array near = given.device() == to.device() ? values : constant(moved(given, to.device()));
  if (near.value().device() != given.device() && values.needs_gradient() && recording())
    throw Error(ErrorCode::usage, "[" + name + "] expected values on " + to_string(to.device()) + ", got recorded ones on " +
                                      to_string(given.device()) + ": their gradient would not come back");
  const Array same = fitting(near, to.shape(), to.dtype());
  {
    const Running running(to.device(), to.bytes() >= kLongBytes);
    Tensor from = same.value();
    // source and target share a storage and may overlap, so the source is copied first
    if (from.storage() == to.storage()) from = converted(from, from.dtype());
    if (to.elems() > 0) kernels::copy_view(from, to);
    to.storage()->written();
  }
  if (!recording()) return;
  self.v = is_recorded(same) ? Variable(to, same.v.tape, same.v.slot) : Variable(to);
  self.graph = is_recorded(same) ? same.graph : nullptr;
}

void bind_in_place(nb::class_<Array>& tensor) {
  const auto of = [](Pairwise op) { return [op](const Side& a, const Side& b) { return arithmetic(op, a, b); }; };
  const auto quotient = [](const Side& a, const Side& b) { return quotient_of(a, b); };
  both(tensor, "add_", "__iadd__", of(Pairwise::add));
  both(tensor, "sub_", "__isub__", of(Pairwise::sub));
  both(tensor, "mul_", "__imul__", of(Pairwise::mul));
  both(tensor, "div_", "__itruediv__", quotient);
  both(tensor, "pow_", "__ipow__", of(Pairwise::pow));
  both(tensor, "floor_divide_", "__ifloordiv__", of(Pairwise::floor_div));
  both(tensor, "remainder_", "__imod__", of(Pairwise::remainder));
  both(tensor, "bitwise_and_", "__iand__", of(Pairwise::bit_and));
  both(tensor, "bitwise_or_", "__ior__", of(Pairwise::bit_or));
  both(tensor, "bitwise_xor_", "__ixor__", of(Pairwise::bit_xor));
  for (const auto& [method, plain] : {std::pair{"exp_", "exp"},
                                      {"log_", "log"},
                                      {"sqrt_", "sqrt"},
                                      {"rsqrt_", "rsqrt"},
                                      {"abs_", "abs"},
                                      {"neg_", "neg"},
                                      {"relu_", "relu"},
                                      {"sigmoid_", "sigmoid"},
                                      {"tanh_", "tanh"},
                                      {"clamp_", "clamp"},
                                      {"masked_fill_", "masked_fill"},
                                      {"round_", "round"},
                                      {"floor_", "floor"},
                                      {"ceil_", "ceil"},
                                      {"tril_", "tril"},
                                      {"triu_", "triu"}})
    written_as(tensor, method, plain);
  tensor.def(
      "fill_", [](Array& self, const Operand& value) -> Array& { return filled(self, value, "fill_"); }, nb::arg("value"),
      nb::rv_policy::reference, "Sets all elements to this number.");
  tensor.def(
      "zero_", [](Array& self) -> Array& { return filled(self, {nb::int_(0)}, "zero_"); }, nb::rv_policy::reference,
      "Sets all elements to 0.");
  tensor.def(
      "copy_",
      [](Array& self, const nb::object& source) -> Array& {
        check_writable(self, "copy_");
        if (nb::isinstance<Array>(source)) {
          write(self, nb::cast<const Array&>(source), "copy_", true);
          return self;
        }
        Tensor values = copy_of(source, "copy_");
        if (values.dtype() != self.value().dtype()) {
          const Running running(Device::cpu(), values.bytes() >= kLongBytes);
          values = converted(values, self.value().dtype(), Keep::whole);
        }
        write(self, constant(values), "copy_");
        return self;
      },
      nb::arg("source"), nb::rv_policy::reference,
      "Writes the values of a tensor, an array or nested lists, which broadcast, into this tensor's memory. A backward() that needs the "
      "old\n"
      "values raises an error, as in PyTorch.");
}

}  // namespace spillway::python
