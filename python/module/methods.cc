// Binds further methods of PyTorch's Tensor: conversions by name, strides, gradients of computed tensors, copying, pickling and
// formatting.
#include <nanobind/stl/string.h>

#include <cstring>

#include "autograd/tape.h"
#include "base/error.h"
#include "kernels/accumulate.h"
#include "python/module/arrays.h"

namespace spillway::python {
namespace {

Tensor sum_of_gradients(const Tensor& a, const Tensor& b) {
  const Tensor sum = empty(a.shape(), a.dtype(), "gradient");
  kernels::add(a, b, sum);
  return sum;
}

// Returns the function and arguments with which pickle makes the tensor again.
nb::object reduced(const Array& self) {
  if (self.graph && !self.graph->over())
    throw WrongType(
        "[copy] Only Tensors created explicitly by the user support the deepcopy protocol: expected a tensor that was not computed "
        "from others, got one that was: detach() or clone() it first");
  Tensor here = moved(readable(self), Device::cpu());
  {
    const Running running(Device::cpu(), false, InForward::on_host);
    here = converted(here, here.dtype());
  }
  const nb::bytes values(reinterpret_cast<const char*>(here.raw()), static_cast<size_t>(here.bytes()));
  const nb::object made = nb::module_::import_("spillway.typed").attr("tensor_of_bytes");
  return nb::make_tuple(
      made, nb::make_tuple(values, std::string(to_string(here.dtype())), nb::cast(self).attr("shape"), self.leaf && self.leaf->wants()));
}

Array of_bytes(const nb::bytes& values, const Word& type, const Wholes& extents, const Flag& requires_grad) {
  const Shape shape = shape_of(extents.all());
  const DType dtype = dtype_of(type);
  if (static_cast<i64>(values.size()) != shape.elems() * size_of(dtype))
    throw WrongValue("[copy] expected the bytes of all elements, got others");
  Tensor t;
  {
    const Running running(Device::cpu(), false, InForward::on_host);
    t = empty(shape, dtype, "copy");
    if (values.size() > 0) std::memcpy(t.raw(), values.data(), values.size());
  }
  Array array = constant(t);
  if (requires_grad) set_wanted(array, true);
  return array;
}

void retain_gradient(Array& self) {
  if (self.leaf || self.kept) return;
  if (!self.needs_gradient())
    throw WrongValue("retain_grad: can't retain_grad on Tensor that has requires_grad=False: expected a recorded tensor");
  const auto kept = std::make_shared<Leaf>();
  Array passed = apply(
      [&](const Variable& v) {
        autograd::Recorder recorder({v}, "retain_grad");
        return recorder.output(v.value, [kept](autograd::Backward& b) {
          // The gradient is copied, since the tape may write to the gradient that is passed on.
          const Tensor copy = converted(b.gradient(), b.gradient().dtype());
          kept->gradient = kept->gradient.defined() ? sum_of_gradients(kept->gradient, copy) : copy;
          b.pass(0, b.gradient());
        });
      },
      self);
  self.v = passed.v;
  self.graph = passed.graph;
  self.kept = kept;
}

}  // namespace

void bind_methods(nb::module_& module, nb::class_<Array>& tensor) {
  module.def("_tensor_of_bytes", of_bytes);
  for (const auto& [name, dtype] : {std::pair{"float", DType::f32},
                                    {"double", DType::f64},
                                    {"half", DType::f16},
                                    {"bfloat16", DType::bf16},
                                    {"long", DType::int64},
                                    {"int", DType::int32},
                                    {"bool", DType::boolean},
                                    {"byte", DType::uint8}}) {
    tensor.def(
        name,
        [dtype](nb::handle self) {
          const Array& array = nb::cast<const Array&>(self);
          return array.value().dtype() == dtype ? nb::borrow(self) : nb::cast(to_type(array, dtype));
        },
        nb::sig(("def " + std::string(name) + "(self) -> Tensor").c_str()));
  }
  tensor
      .def(
          "type_as", [](const Array& self, const Given& other) { return to_type(self, other.value().dtype()); }, nb::arg("other"))
      .def("is_floating_point", [](const Array& self) { return is_floating(self.value().dtype()); })
      .def("is_contiguous", [](const Array& self) { return self.value().is_contiguous(); })
      .def(
          "contiguous",
          [](nb::handle self) { return nb::cast<const Array&>(self).value().is_contiguous() ? nb::borrow(self) : self.attr("clone")(); },
          nb::sig("def contiguous(self) -> Tensor"))
      .def("element_size", [](const Array& self) { return size_of(self.value().dtype()); })
      .def(
          "stride",
          [](const Array& self) {
            nb::list strides;
            for (int axis = 0; axis < self.value().rank(); ++axis) strides.append(self.value().stride(axis));
            return nb::tuple(strides);
          },
          nb::sig("def stride(self) -> tuple[int, ...]"))
      .def_prop_ro("is_leaf", [](const Array& self) { return !self.graph || self.graph->over(); })
      .def_prop_ro("is_cuda", [](const Array& self) { return self.value().device().is_cuda(); })
      .def_prop_ro(
          "data", [](const Array& self) { return made(self.value()); }, "detach().")
      .def("retain_grad", retain_gradient,
           "Keeps the gradient of a tensor that was computed from others, for what is computed from it after this call.")
      .def(
          "__format__",
          [](nb::handle self, const std::string& how) -> nb::object {
            const Array& array = nb::cast<const Array&>(self);
            if (how.empty() && array.value().rank() != 0) return nb::str(self);
            if (array.value().rank() != 0)
              throw WrongType("format: unsupported format string passed to Tensor.__format__: expected a tensor without axes for `" + how +
                              "`, got shape " + to_string(array.value().shape()));
            return nb::steal(PyObject_Format(self.attr("item")().ptr(), nb::str(how.c_str()).ptr()));
          },
          nb::sig("def __format__(self, spec: str, /) -> str"))
      .def(
          "__reduce_ex__", [](const Array& self, const nb::object&) { return reduced(self); }, nb::arg("protocol"))
      .def("__copy__", [](const Array& self) {
        Array same = constant(self.value());
        if (self.leaf && self.leaf->wants()) set_wanted(same, true);
        return same;
      });
}

}  // namespace spillway::python
