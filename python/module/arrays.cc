// Binds the class Tensor with its DLPack export, and dtypes by name. (conversion.cc converts tensors, creation.cc makes them.)
#include "python/module/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cmath>
#include <cstring>

#include "autograd/tape.h"
#include "base/error.h"
#include "kernels/accumulate.h"
#include "python/module/arithmetic.h"
#include "python/module/home.h"
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

// Returns the Python object that keeps the storage alive while another program uses the memory. If that uses it on other queues of the GPU
// than ours, on which the memory is released in order, they are waited for at the end.
nb::object owner_of(const Tensor& t, Settle at_its_end = Settle::all) {
  const auto release = [](void* p) noexcept { delete static_cast<std::shared_ptr<Storage>*>(p); };
  const auto wait_and_release = [](void* p) noexcept {
    settle((*static_cast<std::shared_ptr<Storage>*>(p))->device(), Settle::all);
    delete static_cast<std::shared_ptr<Storage>*>(p);
  };
  auto* const owned = new std::shared_ptr<Storage>(t.storage());
  return at_its_end == Settle::all ? nb::capsule(owned, wait_and_release) : nb::capsule(owned, release);
}

template <class Kind>
nb::object exported(const Tensor& t, const nb::object& owner) {
  std::array<size_t, Shape::kMaxRank> extents{};
  std::array<i64, Shape::kMaxRank> strides{};
  for (int axis = 0; axis < t.rank(); ++axis) {
    extents[static_cast<size_t>(axis)] = static_cast<size_t>(t.size(axis));
    strides[static_cast<size_t>(axis)] = t.stride(axis);
  }
  const nb::ndarray<Kind> array(t.raw(), static_cast<size_t>(t.rank()), extents.data(), owner, strides.data(), dlpack_type(t.dtype()),
                                t.device().is_cuda() ? nb::device::cuda::value : nb::device::cpu::value, t.device().index);
  return nb::cast(array, nb::rv_policy::reference);
}

nb::object to_numpy(const Array& self) {
  const Tensor t = readable(self);
  if (t.device().is_cuda())
    throw WrongType("numpy: expected a tensor in host memory, got one on " + to_string(t.device()) + ": call .cpu() first");
  if (t.dtype() == DType::bf16)
    throw WrongType("numpy: expected a type that NumPy has, got bf16: call .to(\"f32\") first, or use torch.from_dlpack(tensor)");
  return exported<nb::numpy>(t, owner_of(t));
}

nb::object to_dlpack(const Array& self, const nb::kwargs& how) {
  const Tensor t = readable(self);
  // The reader's stream, as the Python array API standard numbers them: 1 is the default stream, which is ours, and -1 one that the reader
  // orders itself. A reader that names none may use any, so all work must be done.
  std::optional<i64> stream;
  if (how.contains("stream") && !how["stream"].is_none()) stream = Whole::read(how["stream"]);
  const bool of_ours = stream == 1 || stream == 0;
  if (t.device().is_cuda()) {
    if (!stream) wait_for_gpu(t.device());
    if (stream && !of_ours && *stream != -1) let_follow_common_queue(t.device(), reinterpret_cast<CUstream_st*>(*stream));
  }
  return exported<nb::array_api>(t, owner_of(t, of_ours ? Settle::ours : Settle::all)).attr("__dlpack__")(**how);
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

void backward(const Array& self, const std::optional<Given>& given, const std::optional<Flag>& retain_graph) {
  const Array y = self;
  const bool retain = retain_graph && *retain_graph;
  Tensor gradient = given ? given->value() : Tensor();
  const Running running(y.value().device(), true);
  if (!y.graph || y.graph->over()) {
    throw Error(ErrorCode::usage,
                y.graph
                    ? "[backward] Trying to backward through the graph a second time: expected a graph on which backward() was not called "
                      "yet, got one on which it was: compute the loss again, or call the earlier one as backward(retain_graph=True)"
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
  if (given && !gradient.is_contiguous()) gradient = converted(gradient, gradient.dtype());
  as_arguments([&] { y.graph->backward(y.v, gradient, retain); });
}

std::vector<i64> extents_of(const Array& self) {
  const auto extents = self.value().shape().extents();
  return {extents.begin(), extents.end()};
}

Array to_device(const Array& self, Device device) {
  // tensors of a block's forward stay on the device where the block runs
  if (self.value().device() == device || self.ends_with_forward()) return self;
  if (self.needs_gradient())
    throw Error(ErrorCode::usage, "[to] expected a tensor without requires_grad, because its gradient would not come back from " +
                                      to_string(device) +
                                      ": call detach() first, and requires_grad_() on the result (a Model moves as a whole)");
  return constant(moved(self.value(), device));
}

// Converts a tensor to a dtype, or copies it to a device.
nb::object to(const nb::handle& object, const nb::args& what, const nb::kwargs& named) {
  Array now = nb::cast<const Array&>(object);
  const auto apply_one = [&](const nb::handle& one) {
    if (one.is_none() || PyBool_Check(one.ptr())) return;  // a bool is the argument non_blocking, which has no effect
    if (nb::isinstance<Array>(one)) {
      const Tensor like = nb::cast<const Array&>(one).value();
      now = to_device(to_type(now, like.dtype()), like.device());
      return;
    }
    const std::string name = words_of(one);
    now = name.starts_with("cpu") || name.starts_with("cuda") ? to_device(now, device_of(one)) : to_type(now, dtype_of(name));
  };
  for (const nb::handle one : what) apply_one(one);
  for (const auto& [key, one] : named) {
    const std::string name = words_of(key);
    if (name == "dtype" || name == "device") {
      apply_one(one);
    } else if (name != "copy" && name != "non_blocking") {
      throw WrongType("to: expected dtype, device, copy or non_blocking, got " + name);
    }
  }
  const Array& self = nb::cast<const Array&>(object);
  const bool same =
      !self.ends_with_forward() && now.value().storage() == self.value().storage() && now.value().dtype() == self.value().dtype();
  if (named.contains("copy") && named["copy"].is(nb::bool_(true)) && same) return object.attr("clone")();
  return same ? nb::borrow(object) : nb::cast(now);
}

}  // namespace

nb::object torch_view(const Tensor& t) { return exported<nb::pytorch>(t, nb::none()); }

Array to_type(const Array& self, DType wanted) {
  if (self.value().dtype() == wanted) return self;
  return apply([wanted](const Variable& x) { return as_type(x, wanted); }, self);
}

Tensor readable(const Array& array) {
  const Tensor& value = array.value();
  return array.ends_with_forward() ? Pass::current()->values(value) : value;
}

DType dtype_of(const std::string& name) {
  static const std::pair<const char*, DType> names[] = {
      {"f32", DType::f32},       {"float32", DType::f32}, {"f64", DType::f64},     {"float64", DType::f64}, {"bf16", DType::bf16},
      {"bfloat16", DType::bf16}, {"f16", DType::f16},     {"float16", DType::f16}, {"int32", DType::int32}, {"int64", DType::int64},
      {"uint8", DType::uint8},   {"i32", DType::int32},   {"i64", DType::int64},   {"u8", DType::uint8},    {"bool", DType::boolean}};
  std::string own = name.starts_with("torch.") ? name.substr(6) : name;
  if (own.starts_with("<class '") && own.ends_with("'>")) {  // the names of NumPy's and Python's types look like this
    own = own.substr(8, own.size() - 10);
    own = own == "float" ? "f64" : own == "int" ? "i64" : own.starts_with("numpy.") ? own.substr(6) : own;
  }
  for (const auto& [known, dtype] : names) {
    if (own == known) return dtype;
  }
  throw WrongValue("dtype: expected f32, f64, bf16, f16, i32, i64, u8 or bool, got " + name);
}

Shape shape_of(const std::vector<i64>& extents) {
  constexpr i64 most = i64{1} << 59;  // for tensors of at most this many elements, the bytes of any dtype can be counted in 64 bits
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
          "__init__",
          [](Array* self, const nb::args& args, const nb::kwargs& named) {
            const bool by_name = args.size() == 0 && named.size() == 1 && named.contains("array");
            if (args.size() + named.size() != 1 || (named.size() == 1 && !by_name))
              throw WrongType("Tensor: expected one array, whose memory it views, got " + std::to_string(args.size() + named.size()) +
                              " arguments: use spillway.zeros(2, 3) for a new tensor, or spillway.tensor(values)");
            new (self) Array(constant(borrow(by_name ? nb::borrow(named["array"]) : nb::borrow(args[0]), "array")));
          },
          nb::sig("def __init__(self, array: object) -> None"), "A view of the array's memory, which must be contiguous and writable.")
      .def_prop_ro(
          "shape", [](const Array& self) { return nb::tuple(nb::cast(extents_of(self))); }, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "dtype", [](const Array& self) { return std::string(to_string(self.value().dtype())); },
          "\"f32\", \"f64\", \"bf16\", \"f16\", \"i32\", \"i64\", \"u8\" or \"bool\".")
      .def_prop_ro("ndim", [](const Array& self) { return self.value().rank(); })
      .def(
          "size",
          [](const Array& self, const std::optional<Whole>& dim) -> nb::object {
            if (!dim) return nb::tuple(nb::cast(extents_of(self)));
            return nb::int_(self.value().size(from_front(self, *dim)));
          },
          nb::arg("dim") = nb::none(), nb::sig("def size(self, dim: int | None = None) -> tuple[int, ...] | int"),
          "The shape, or one extent.")
      .def(
          "numel", [](const Array& self) { return self.value().elems(); }, "The number of elements.")
      .def("nelement", [](const Array& self) { return self.value().elems(); })
      .def("dim", [](const Array& self) { return self.value().rank(); })
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
      .def("__bool__",
           [](const Array& self) {
             if (self.value().elems() != 1)
               throw WrongValue("Boolean value of Tensor with more than one value is ambiguous: expected one number, got shape " +
                                to_string(self.value().shape()) + ": use any() or all()");
             return number_in(self) != 0;
           })
      .def("__index__",
           [](const Array& self) {
             if (is_floating(self.value().dtype()) || self.value().elems() != 1)
               throw WrongType("index: expected a tensor of one whole number, got " + std::string(to_string(self.value().dtype())) + " " +
                               to_string(self.value().shape()));
             return whole_number_in(self);
           })
      .def(
          "__contains__",
          [](const Array& self, const nb::object& value) {
            if (!Operand::accepts(value)) throw WrongType("in: expected a number or a tensor, got " + kind_of(value));
            const Array same = arithmetic(Pairwise::eq, side_of(self), side_of(value, self));
            return nb::cast<bool>(nb::cast(same).attr("any")().attr("item")());
          },
          nb::arg("value").none())
      .def("__len__",
           [](const Array& self) {
             if (self.value().rank() == 0) throw WrongType("len() of a 0-d tensor: expected a tensor with axes, got a single number");
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
      .def("backward", backward, nb::arg("gradient") = nb::none(), nb::arg("retain_graph") = nb::none(),
           "Computes the gradients of this one number (or of its product with `gradient`) for all tensors with requires_grad. What it was\n"
           "computed from is released, unless retain_graph is True.")
      .def(
          "detach", [](const Array& self) { return made(self.value()); }, "A tensor on the same memory that belongs to no graph.")
      .def(
          "clone",
          [](const Array& self) {
            return apply(
                [](const Variable& v) {
                  autograd::Recorder recorder({v}, "clone");
                  return recorder.output(converted(v.value, v.dtype()), [](autograd::Backward& b) { b.pass(0, b.gradient()); });
                },
                self);
          },
          "A copy, through which gradients pass.")
      .def("to", to,
           nb::sig("def to(self, *dtype_or_device: object, dtype: object = None, device: object = None, copy: bool = False, non_blocking: "
                   "bool = False) -> Tensor"),
           "Of another type (\"bf16\", or that of a tensor), each element rounded to the nearest; or on another device (\"cuda:0\", "
           "\"cpu\");\n"
           "the tensor itself if it is so.")
      .def(
          "cuda", [](const Array& self, const Whole& index) { return to_device(self, Device::cuda(index.small())); }, nb::arg("index") = 0,
          "to(\"cuda:0\").")
      .def(
          "cpu", [](const Array& self) { return to_device(self, Device::cpu()); }, "to(\"cpu\").");
  tensor.attr("__array_priority__") = 1000;
  tensor.attr("__array_ufunc__") = nb::none();
  return tensor;
}

}  // namespace spillway::python
