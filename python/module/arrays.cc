// Binds the class Tensor with its DLPack export, dtypes by name, and the functions that make new tensors. (conversion.cc converts existing
// ones.)
#include "python/module/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "device/transfer.h"
#include "tensor/create.h"
#include "tensor/print.h"

namespace spillway::python {
namespace {

using Code = nb::dlpack::dtype_code;

nb::dlpack::dtype dlpack_type(DType dtype) {
  const auto of = [&](Code code) { return nb::dlpack::dtype{static_cast<u8>(code), static_cast<u8>(8 * size_of(dtype)), 1}; };
  switch (dtype) {
    case DType::bf16:
      return of(Code::Bfloat);
    case DType::int32:
    case DType::int64:
      return of(Code::Int);
    case DType::uint8:
      return of(Code::UInt);
    case DType::boolean:
      return of(Code::Bool);
    default:
      return of(Code::Float);
  }
}

// Returns the Python object that keeps the storage alive while another program uses the memory.
nb::object owner_of(const Tensor& t) {
  return nb::capsule(new std::shared_ptr<Storage>(t.storage()), [](void* p) noexcept {
    const std::unique_ptr<std::shared_ptr<Storage>> owned(static_cast<std::shared_ptr<Storage>*>(p));
    settle((*owned)->device());
  });
}

template <class Kind>
nb::object exported(const Tensor& t) {
  std::array<size_t, Shape::kMaxRank> extents{};
  std::array<i64, Shape::kMaxRank> strides{};
  for (int axis = 0; axis < t.rank(); ++axis) {
    extents[static_cast<size_t>(axis)] = static_cast<size_t>(t.size(axis));
    strides[static_cast<size_t>(axis)] = t.stride(axis);
  }
  const nb::ndarray<Kind> array(t.raw(), static_cast<size_t>(t.rank()), extents.data(), owner_of(t), strides.data(), dlpack_type(t.dtype()),
                                t.device().is_cuda() ? nb::device::cuda::value : nb::device::cpu::value, t.device().index);
  return nb::cast(array, nb::rv_policy::reference);
}

nb::object to_numpy(const Array& self) {
  const Tensor t = readable(self);
  if (t.device().is_cuda())
    throw WrongType("numpy: expected a tensor in host memory, got one on " + to_string(t.device()) + ": call .cpu() first");
  if (t.dtype() == DType::bf16)
    throw WrongType("numpy: expected a type that NumPy has, got bf16: call .to(\"f32\") first, or use torch.from_dlpack(tensor)");
  return exported<nb::numpy>(t);
}

nb::object to_dlpack(const Array& self, const nb::kwargs& how) {
  const Tensor t = readable(self);
  const nb::object array = exported<nb::array_api>(t);
  if (t.device().is_cuda()) wait_for_gpu(t.device());  // the consumer may use any queue
  return array.attr("__dlpack__")(**how);
}

// Returns read(t) for a tensor of one element; `t` is in host memory.
template <class Read>
auto element(const Array& self, const Read& read) {
  if (self.value().elems() != 1) throw WrongValue("item: expected a tensor of one element, got " + to_string(self.value().shape()));
  const Tensor here = moved(readable(self), Device::cpu());
  if (Pass::current() != nullptr) return read(here);
  check_process();
  const Turn turn(false);
  return read(here);
}

double number_in(const Array& self) {
  return element(self, [](const Tensor& t) { return load_wide(t.raw(), t.dtype()); });
}

// Returns the only element of a tensor of whole numbers.
i64 whole_number_in(const Array& self) {
  return element(
      self, [](const Tensor& t) { return t.dtype() == DType::int64 ? *t.data<i64>() : static_cast<i64>(load_wide(t.raw(), t.dtype())); });
}

nb::object item(const Array& self) {
  if (is_floating(self.value().dtype())) return nb::float_(number_in(self));
  const i64 whole = whole_number_in(self);
  if (self.value().dtype() == DType::boolean) return nb::bool_(whole != 0);
  return nb::int_(whole);
}

// Returns int(x), dropping the fraction as Python does.
nb::object whole_in(const Array& self) {
  if (!is_floating(self.value().dtype())) return nb::int_(whole_number_in(self));
  const double number = number_in(self);
  if (!std::isfinite(number)) throw WrongValue("int: expected a finite number, got " + std::to_string(number));
  return nb::steal(PyLong_FromDouble(number));
}

void backward(const Array& self, const std::optional<Given>& given) {
  const Array y = self;
  const Tensor gradient = given ? given->value() : Tensor();
  const Running running(y.value().device(), true);
  if (!y.graph || y.graph->over()) {
    throw Error(ErrorCode::usage,
                y.graph
                    ? "[backward] expected a graph on which backward() was not called yet, got one on which it was: compute the loss again"
                    : "[backward] expected a tensor computed from others with requires_grad, got a constant");
  }
  if (!given && y.value().elems() != 1)
    throw Error(ErrorCode::usage,
                "[backward] expected a tensor of one number, or a gradient as the argument, got shape " + to_string(y.value().shape()));
  if (given && (gradient.shape() != y.value().shape() || gradient.dtype() != y.value().dtype())) {
    throw Error(ErrorCode::usage, "[backward] expected a gradient of " + std::string(to_string(y.value().dtype())) + " " +
                                      to_string(y.value().shape()) + ", got " + std::string(to_string(gradient.dtype())) + " " +
                                      to_string(gradient.shape()));
  }
  as_arguments([&] { y.graph->backward(y.v, gradient); });
}

std::vector<i64> extents_of(const Array& self) {
  const auto extents = self.value().shape().extents();
  return {extents.begin(), extents.end()};
}

// Throws in the cases in which PyTorch would record the copy for backward(), because copy_() of this module is never recorded.
void check_unrecorded(const Array& self, const nb::object& from) {
  if (!recording()) return;
  if (nb::isinstance<Array>(from) && nb::cast<const Array&>(from).needs_gradient())
    throw Error(
        ErrorCode::usage,
        "[copy_] expected a source without requires_grad, because copy_() is not recorded: detach() the source, or write under no_grad()");
  if (self.graph && !self.graph->over())
    throw Error(ErrorCode::usage,
                "[copy_] expected a tensor that was not computed from others with requires_grad, because copy_() would not change the "
                "recorded graph: detach() the tensor first, or write under no_grad()");
}

void copy_into(const Array& self, const nb::object& from) {
  if (self.in_block)
    throw Error(ErrorCode::usage,
                "[copy_] expected a tensor outside of a block's forward, got one in it, whose values backward and the "
                "run's other micro-batches read: compute a new tensor");
  check_unrecorded(self, from);
  const Tensor to = self.value();
  const Tensor values = nb::isinstance<Array>(from) ? nb::cast<const Array&>(from).value() : copy_of(from, "copy_");
  if (values.shape() != to.shape())
    throw WrongValue("copy_: expected shape " + to_string(to.shape()) + ", got " + to_string(values.shape()));
  if (!to.is_contiguous()) throw WrongValue("copy_: expected a contiguous tensor to write into, got one with other strides");
  const bool long_enough = to.bytes() >= kLongBytes;
  // `from` is copied first, since `from` and the destination may overlap.
  const Tensor same = [&] {
    const Running running(values.device(), long_enough);
    return converted(values, to.dtype(), Keep::whole);
  }();
  const Tensor near = moved(same, to.device());
  const Running running(to.device(), long_enough);
  to.storage()->written();
  if (to.elems() > 0) transfer(to.raw(), near.raw(), to.bytes());
}

Variable recorded_cast(const Variable& x, DType wanted) {
  const Tensor y = converted(x.value, wanted);
  if (!is_floating(wanted) || !is_floating(x.dtype())) return y;
  autograd::Recorder recorder({x}, "to");
  return recorder.output(y, [from = x.dtype()](autograd::Backward& b) {
    if (b.needs(0)) b.pass(0, converted(b.gradient(), from));
  });
}

Array to_device(const Array& self, Device device) {
  if (self.value().device() == device || self.in_block) return self;  // in a block's forward, tensors are where the block runs
  if (self.needs_gradient())
    throw Error(ErrorCode::usage, "[to] expected a tensor without requires_grad, because its gradient would not come back from " +
                                      to_string(device) +
                                      ": call detach() first, and requires_grad_() on the result (a Model moves as a whole)");
  return constant(moved(self.value(), device));
}

// Converts a tensor to a dtype, or copies it to a device.
Array to(const Array& self, const nb::object& what) {
  const std::string name = words_of(what);
  if (name.starts_with("cpu") || name.starts_with("cuda")) return to_device(self, device_of(what));
  const DType wanted = dtype_of(name);
  return apply([wanted](const Variable& x) { return recorded_cast(x, wanted); }, self);
}

}  // namespace

Tensor readable(const Array& array) {
  const Tensor& value = array.value();
  return array.in_block ? Pass::current()->values(value) : value;
}

DType dtype_of(const std::string& name) {
  static const std::pair<const char*, DType> names[] = {
      {"f32", DType::f32},       {"float32", DType::f32}, {"f64", DType::f64},     {"float64", DType::f64}, {"bf16", DType::bf16},
      {"bfloat16", DType::bf16}, {"f16", DType::f16},     {"float16", DType::f16}, {"int32", DType::int32}, {"int64", DType::int64},
      {"uint8", DType::uint8},   {"i32", DType::int32},   {"i64", DType::int64},   {"u8", DType::uint8},    {"bool", DType::boolean}};
  const std::string own = name.starts_with("torch.") ? name.substr(6) : name;
  for (const auto& [known, dtype] : names) {
    if (own == known) return dtype;
  }
  throw WrongValue("dtype: expected f32, f64, bf16, f16, i32, i64, u8 or bool, got " + name);
}

Shape shape_of(const std::vector<i64>& extents) {
  constexpr i64 most = i64{1} << 59;  // with at most so many elements, the bytes of any dtype can be counted in 64 bits
  if (extents.size() > Shape::kMaxRank) throw WrongValue("shape: expected at most 6 axes, got " + std::to_string(extents.size()));
  i64 elems = 1;
  for (const i64 extent : extents) {
    if (extent < 0) throw WrongValue("shape: expected extents of at least 0, got " + std::to_string(extent));
    if (__builtin_mul_overflow(elems, extent, &elems) || elems > most)
      throw Error(ErrorCode::refused, "[shape] expected at most 2^59 elements, got the shape " + to_string(Shape(extents)));
  }
  return Shape(extents);
}

nb::class_<Array> bind_tensor(nb::module_& module) {
  nb::class_<Array> tensor(
      module, "Tensor",
      "An array of numbers in host memory or on a GPU, of at most 6 axes. Tensor(array) is a view of an array that has DLPack's protocol\n"
      "(NumPy, PyTorch, ...): the same memory, at the same address, which lives as long as either does. spillway.tensor(array) copies.");
  tensor
      .def(
          "__init__", [](Array* self, const nb::object& array) { new (self) Array(constant(borrow(array, "array"))); }, nb::arg("array"),
          "A view of the array's memory, which must be contiguous and writable.")
      .def_prop_ro(
          "shape", [](const Array& self) { return nb::tuple(nb::cast(extents_of(self))); }, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "dtype", [](const Array& self) { return std::string(to_string(self.value().dtype())); },
          "\"f32\", \"f64\", \"bf16\", \"f16\", \"i32\", \"i64\", \"u8\" or \"bool\".")
      .def_prop_ro("ndim", [](const Array& self) { return self.value().rank(); })
      .def_prop_ro(
          "size", [](const Array& self) { return self.value().elems(); }, "The number of elements.")
      .def_prop_ro("nbytes", [](const Array& self) { return self.value().bytes(); })
      .def_prop_ro(
          "device", [](const Array& self) { return to_string(self.value().device()); }, "\"cpu\", \"cuda:0\".")
      .def_prop_ro(
          "name", [](const Array& self) { return self.leaf ? self.leaf->name : std::string(); },
          "The name of a parameter; empty for other tensors.")
      .def(
          "data_ptr", [](const Array& self) { return reinterpret_cast<uintptr_t>(self.value().raw()); },
          "The address of the first element.")
      .def("numpy", to_numpy, nb::sig("def numpy(self) -> \"numpy.ndarray\""), "The same memory as a NumPy array.")
      .def("__dlpack__", to_dlpack, nb::sig("def __dlpack__(self, **kwargs: object) -> object"), "The same memory as a DLPack capsule.")
      .def(
          "__dlpack_device__",
          [](const Array& self) {
            const Device device = self.value().device();
            return nb::make_tuple(device.is_cuda() ? nb::device::cuda::value : nb::device::cpu::value, device.index);
          },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def(
          "__array__",
          [](const Array& self, const nb::args& args, const nb::kwargs& how) {
            nb::object array = to_numpy(self);
            if (args.size() > 0 && !args[0].is_none()) array = array.attr("astype")(args[0]);
            if (how.contains("dtype") && !how["dtype"].is_none()) array = array.attr("astype")(how["dtype"]);
            if (how.contains("copy") && how["copy"].is(nb::bool_(true))) array = array.attr("copy")();
            return array;
          },
          nb::sig("def __array__(self, dtype: object = None, copy: bool | None = None) -> object"))
      .def("item", item, nb::sig("def item(self) -> float | int | bool"), "The value of a tensor with one element, as a Python number.")
      .def(
          "tolist",
          [](const Array& self) {
            Tensor here = moved(readable(self), Device::cpu());
            if (here.dtype() == DType::bf16) {
              const Running running(Device::cpu(), here.bytes() >= kLongBytes, InForward::on_host);
              here = converted(here, DType::f32);
            }
            return to_numpy(constant(here)).attr("tolist")();
          },
          nb::sig("def tolist(self) -> list"))
      .def("__float__", number_in)
      .def("__int__", whole_in)
      .def("__bool__", [](const Array& self) { return number_in(self) != 0; })
      .def("__len__",
           [](const Array& self) {
             if (self.value().rank() == 0) throw WrongType("len: expected a tensor with axes, got a single number");
             return self.value().size(0);
           })
      .def("__repr__",
           [](const Array& self) {
             const Tensor value = self.value();
             const std::string text = [&] {
               const Running running(value.device(), false, InForward::on_block);
               return to_string(value);
             }();
             return "Tensor(" + (self.leaf && !self.leaf->name.empty() ? self.leaf->name + ": " : "") + text +
                    (self.value().device().is_cuda() ? ", " + to_string(self.value().device()) : "") +
                    (self.needs_gradient() ? ", requires_grad" : "") + ")";
           })
      .def_prop_rw(
          "requires_grad", [](const Array& self) { return self.needs_gradient(); },
          [](Array& self, const Flag& wanted) { set_wanted(self, wanted); },
          "Whether operations on this tensor are recorded. It can be set only on a tensor that was not computed from others.")
      .def(
          "requires_grad_", [](Array& self, const Flag& wanted) -> Array& { return set_wanted(self, wanted), self; },
          nb::arg("requires_grad") = true, nb::rv_policy::reference)
      .def_prop_rw(
          "grad",
          [](const Array& self) -> std::optional<Array> {
            const Array kept = self;
            Tensor gradient = [&] {
              const Running running(kept.value().device());
              return kept.gradient();
            }();
            return gradient.defined() ? std::optional(constant(std::move(gradient))) : std::nullopt;
          },
          [](Array& self, const nb::object& none) {
            if (!none.is_none()) throw WrongValue("grad: expected None, which clears the gradient");
            const Array kept = self;
            const Turn turn(false);
            kept.forget_gradient();
          },
          nb::for_setter(nb::arg("gradient").none()),
          "The gradient, summed over all backward() calls since it was last cleared; f32 for bf16 and f16 parameters. None if there is no "
          "gradient.")
      .def("backward", backward, nb::arg("gradient") = nb::none(),
           "Computes the gradients of this one number (or of its product with `gradient`) for all tensors with requires_grad. A graph can "
           "be used once.")
      .def(
          "detach", [](const Array& self) { return made(self.value()); }, "A tensor on the same memory that belongs to no graph.")
      .def(
          "clone",
          [](const Array& self) {
            const Tensor value = self.value();
            const Running running(value.device(), value.bytes() >= kLongBytes, InForward::on_block);
            return made(converted(brought_here(value), value.dtype()));
          },
          "A copy that belongs to no graph.")
      .def("to", to, nb::arg("dtype_or_device"), nb::sig("def to(self, dtype_or_device: object) -> Tensor"),
           "A copy of another type (\"bf16\"), each element rounded to the nearest; or on another device (\"cuda:0\", \"cpu\").")
      .def(
          "cuda", [](const Array& self, const Whole& index) { return to_device(self, Device::cuda(index.small())); }, nb::arg("index") = 0,
          "to(\"cuda:0\").")
      .def(
          "cpu", [](const Array& self) { return to_device(self, Device::cpu()); }, "to(\"cpu\").")
      .def(
          "copy_", [](Array& self, const nb::object& from) -> Array& { return copy_into(self, from), self; }, nb::arg("source"),
          nb::rv_policy::reference,
          "Writes the values of an array of the same shape into this tensor's memory. The write is not recorded; a backward() that needs "
          "the old values raises an error, as in PyTorch.");
  tensor.attr("__array_priority__") = 1000;
  tensor.attr("__array_ufunc__") = nb::none();
  return tensor;
}

namespace {

// Makes a tensor of the given extents and type by calling make(shape, dtype).
template <class Make>
Array fresh(const Wholes& extents, const Word& type, const nb::object& device, const Make& make) {
  const Shape shape = shape_of(extents.all());
  const DType dtype = dtype_of(type);
  const Running running(device_of(device), shape.elems() * size_of(dtype) >= kLongBytes, InForward::on_block);
  return made(as_arguments([&] { return make(shape, dtype); }));
}

Array tensor_from(const nb::object& values, const std::optional<nb::object>& type, const Flag& requires_grad,
                  const std::optional<nb::object>& device) {
  const Device there = device ? device_of(*device) : device_of_array(values);
  std::optional<DType> dtype;
  if (type) dtype = dtype_of(words_of(*type));
  Tensor copy = copy_of(values, "values");
  if (!dtype && is_untyped(values) && (copy.dtype() == DType::f64 || copy.elems() == 0)) dtype = DType::f32;
  if (dtype && *dtype != copy.dtype()) {
    const Running running(Device::cpu(), copy.bytes() >= kLongBytes, InForward::on_host);
    copy = converted(copy, *dtype, Keep::whole);
  }
  Array array = constant(moved(copy, there));
  if (requires_grad) set_wanted(array, true);
  return array;
}

Array range(const Real& begin, const std::optional<Real>& end, const Real& step, const Word& type, const nb::object& device) {
  const double from = end ? static_cast<double>(begin) : 0, to = end ? static_cast<double>(*end) : static_cast<double>(begin), by = step;
  const DType dtype = dtype_of(type);
  const Running running(device_of(device), std::abs(to - from) >= std::abs(by) * kLongBytes / 8, InForward::on_block);
  return made(as_arguments([&] { return arange(from, to, by, dtype); }));
}

}  // namespace

void bind_creation(nb::module_& module) {
  const auto where = nb::arg("device") = "cpu";
  module.def("tensor", tensor_from, nb::arg("values"), nb::arg("dtype") = nb::none(), nb::arg("requires_grad") = false,
             nb::arg("device") = nb::none(),
             nb::sig("def tensor(values: object, dtype: str | None = None, requires_grad: bool = False, device: object = None) -> Tensor"),
             "A copy of an array (with any strides) or of nested lists of numbers. By default the dtype is that of the array, for lists "
             "f32, i64 if\n"
             "all numbers are whole, bool if all are bools; the device is that of the array. Whole numbers that the dtype cannot hold "
             "exactly are\n"
             "refused; floats are rounded.");
  module.def(
      "from_dlpack", [](const nb::object& array) { return constant(borrow(array, "array")); }, nb::arg("array"),
      "A view of the array's memory, like Tensor(array).");
  module.def(
      "zeros",
      [](const Wholes& shape, const Word& dtype, const nb::object& device) {
        return fresh(shape, dtype, device, [](const Shape& s, DType t) { return zeros(s, t); });
      },
      nb::arg("shape"), nb::arg("dtype") = "f32", where);
  module.def(
      "ones",
      [](const Wholes& shape, const Word& dtype, const nb::object& device) {
        return fresh(shape, dtype, device, [](const Shape& s, DType t) { return ones(s, t); });
      },
      nb::arg("shape"), nb::arg("dtype") = "f32", where);
  module.def(
      "full",
      [](const Wholes& shape, const Real& value, const Word& dtype, const nb::object& device) {
        const double number = value;
        return fresh(shape, dtype, device, [=](const Shape& s, DType t) { return full(s, number, t); });
      },
      nb::arg("shape"), nb::arg("value"), nb::arg("dtype") = "f32", where);
  module.def("arange", range, nb::arg("begin"), nb::arg("end") = nb::none(), nb::arg("step") = 1.0, nb::arg("dtype") = "f32", where,
             "The numbers begin + i * step below end, for i = 0, 1, ..., as a tensor [N]; arange(n) gives 0 to n - 1.");
  module.def(
      "randn",
      [](const Wholes& shape, const Seed& seed, const Word& dtype, const nb::object& device) {
        const RandomKey key{seed};
        return fresh(shape, dtype, device, [=](const Shape& s, DType t) { return randn(s, key, t); });
      },
      nb::arg("shape"), nb::kw_only(), nb::arg("seed"), nb::arg("dtype") = "f32", where,
      "Standard normal numbers that depend only on the seed and on an element's index: there is no global random generator.");
  module.def(
      "uniform",
      [](const Wholes& shape, const Real& lowest, const Real& highest, const Seed& seed, const Word& dtype, const nb::object& device) {
        const double from = lowest, to = highest;
        const RandomKey key{seed};
        return fresh(shape, dtype, device, [=](const Shape& s, DType t) { return uniform(s, key, from, to, t); });
      },
      nb::arg("shape"), nb::arg("lowest") = 0.0, nb::arg("highest") = 1.0, nb::kw_only(), nb::arg("seed"), nb::arg("dtype") = "f32", where,
      "Numbers uniform in [lowest, highest) that depend only on the seed and on an element's index.");
}

}  // namespace spillway::python
