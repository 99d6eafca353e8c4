// Binds the functions that make new tensors.
#include <nanobind/stl/optional.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "kernels/layout/layout.h"
#include "python/module/arrays.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

// The options of a function that makes a new tensor, apart from the shape.
struct Options {
  std::optional<DType> dtype;
  Device device;
  bool requires_grad = false;
};

Options options_from(const nb::object& dtype, const nb::object& device, const Flag& requires_grad) {
  Options options;
  if (!dtype.is_none()) options.dtype = dtype_of(words_of(dtype));
  if (!device.is_none()) options.device = device_of(device);
  options.requires_grad = requires_grad;
  return options;
}

// Makes a tensor by calling make(shape, dtype).
template <class Make>
Array fresh(const Shape& shape, const Options& options, const Make& make) {
  const DType dtype = options.dtype.value_or(DType::f32);
  Array array = [&] {
    const Running running(options.device, shape.elems() * size_of(dtype) >= kLongBytes, InForward::on_block);
    return made(as_arguments([&] { return make(shape, dtype); }));
  }();
  if (options.requires_grad) set_wanted(array, true);
  return array;
}

// Reads the arguments of a call such as zeros(2, 3), zeros((2, 3)), or zeros((2, 3), "f32", "cpu").
std::pair<Shape, Options> sized(const nb::args& args, nb::object dtype, nb::object device, const Flag& requires_grad) {
  size_t count = args.size();
  std::vector<nb::object> words;
  while (count > 1 && !PyIndex_Check(args[count - 1].ptr())) words.insert(words.begin(), nb::borrow(args[--count]));
  if (!words.empty()) dtype = words[0];
  if (words.size() > 1) device = words[1];
  nb::list numbers;
  for (size_t i = 0; i < count; ++i) numbers.append(args[i]);
  const Wholes extents = count == 1 ? Wholes::read(args[0]) : Wholes::read(numbers);
  return {shape_of(extents.all()), options_from(dtype, device, requires_grad)};
}

DType type_of_number(const nb::handle& value) {
  if (PyBool_Check(value.ptr())) return DType::boolean;
  return PyFloat_Check(value.ptr()) || !PyIndex_Check(value.ptr()) ? DType::f32 : DType::int64;
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

Array range(const nb::object& start, const nb::object& end, const nb::object& step, const nb::object& dtype, const nb::object& device,
            const Flag& requires_grad) {
  const bool one = end.is_none();
  const double from = one ? 0 : static_cast<double>(Real::read(start)), to = Real::read(one ? start : end), by = Real::read(step);
  Options options = options_from(dtype, device, requires_grad);
  if (!options.dtype) {
    const bool whole =
        type_of_number(start) != DType::f32 && (one || type_of_number(end) != DType::f32) && type_of_number(step) != DType::f32;
    options.dtype = whole ? DType::int64 : DType::f32;
  }
  Array array = [&] {
    const Running running(options.device, std::abs(to - from) >= std::abs(by) * kLongBytes / 8, InForward::on_block);
    return made(as_arguments([&] { return arange(from, to, by, *options.dtype); }));
  }();
  if (options.requires_grad) set_wanted(array, true);
  return array;
}

Array eye(const Whole& n, const std::optional<Whole>& m, const nb::object& dtype, const nb::object& device, const Flag& requires_grad) {
  const i64 rows = n, columns = m ? static_cast<i64>(*m) : rows;
  return fresh(shape_of({rows, columns}), options_from(dtype, device, requires_grad), [](const Shape& shape, DType type) {
    const Tensor t = zeros(shape, type), ones = full({1, 1}, 1, type);
    for (i64 i = 0; i < std::min(shape[0], shape[1]); ++i) kernels::copy_view(ones, t.slice(0, i, i + 1).slice(1, i, i + 1));
    return t;
  });
}

// Computes evenly spaced numbers as PyTorch does: the first half from `start` on and the second half back from `end`.
Array linspace(const Real& start, const Real& end, const Whole& steps, const nb::object& dtype, const nb::object& device,
               const Flag& requires_grad) {
  const i64 count = steps;
  if (count < 0) throw WrongValue("linspace: expected a number of steps of at least 0, got " + std::to_string(count));
  const double from = start, to = end, step = count > 1 ? (to - from) / static_cast<double>(count - 1) : 0;
  return fresh(shape_of({count}), options_from(dtype, device, requires_grad), [&](const Shape& shape, DType type) {
    std::vector<double> numbers;
    for (i64 i = 0; i < count; ++i)
      numbers.push_back(i < count / 2 ? from + step * static_cast<double>(i) : to - step * static_cast<double>(count - 1 - i));
    if (count == 1) numbers[0] = from;
    return converted(tensor_of<double>(std::span<const double>(numbers), shape), type);
  });
}

// Returns a tensor that shares the memory of an array if the array has the wanted type and device; otherwise a copy.
nb::object as_tensor(const nb::object& data, const nb::object& dtype, const nb::object& device) {
  if (nb::isinstance<Array>(data)) return data.attr("to")(nb::arg("dtype") = dtype, nb::arg("device") = device);
  if (is_untyped(data)) {
    const std::optional<nb::object> type = dtype.is_none() ? std::nullopt : std::optional(dtype);
    const std::optional<nb::object> there = device.is_none() ? std::nullopt : std::optional(device);
    return nb::cast(tensor_from(data, type, Flag(), there));
  }
  return nb::cast(constant(borrow(data, "data"))).attr("to")(nb::arg("dtype") = dtype, nb::arg("device") = device);
}

}  // namespace

#define SPILLWAY_KIND nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(), nb::arg("requires_grad") = false
#define SPILLWAY_KIND_TEXT "dtype: object = None, device: object = None, requires_grad: bool = False) -> Tensor"

void bind_creation(nb::module_& module) {
  module.def("tensor", tensor_from, nb::arg("values"), nb::arg("dtype") = nb::none(), nb::arg("requires_grad") = false,
             nb::arg("device") = nb::none(),
             nb::sig("def tensor(values: object, dtype: object = None, requires_grad: bool = False, device: object = None) -> Tensor"),
             "A copy of an array (with any strides) or of nested lists of numbers. By default the dtype is that of the array, for lists "
             "f32, i64 if\n"
             "all numbers are whole, bool if all are bools; the device is that of the array. Whole numbers that the dtype cannot hold "
             "exactly are\n"
             "refused; floats are rounded.");
  module.def(
      "from_dlpack", [](const nb::object& array) { return constant(borrow(array, "array")); }, nb::arg("array"),
      "A view of the array's memory, like Tensor(array).");
  module.def("as_tensor", as_tensor, nb::arg("data"), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
             nb::sig("def as_tensor(data: object, dtype: object = None, device: object = None) -> Tensor"),
             "The tensor itself, or a view of the array's memory, if it has this type and is on this device; else a copy.");
  module.def(
      "from_numpy", [](const nb::object& array) { return constant(borrow(array, "array")); }, nb::arg("array"),
      "A view of the array's memory, like Tensor(array).");
  const auto numbers = [&](const char* name, double value) {
    module.def(
        name,
        [value](const nb::args& size, const nb::object& dtype, const nb::object& device, const Flag& requires_grad) {
          const auto [shape, options] = sized(size, dtype, device, requires_grad);
          return fresh(shape, options, [value](const Shape& s, DType t) { return full(s, value, t); });
        },
        nb::arg("size"), SPILLWAY_KIND,
        nb::sig(("def " + std::string(name) + "(*size: int | collections.abc.Sequence[int], " SPILLWAY_KIND_TEXT).c_str()));
    module.def((std::string(name) + "_like").c_str(),
               [value](const Given& input, const nb::object& dtype, const nb::object& device, const Flag& requires_grad) {
                 Options options = options_from(dtype, device, requires_grad);
                 if (!options.dtype) options.dtype = input.value().dtype();
                 if (device.is_none()) options.device = input.value().device();
                 return fresh(input.value().shape(), options, [value](const Shape& s, DType t) { return full(s, value, t); });
               },
               nb::arg("input"), nb::kw_only(), SPILLWAY_KIND,
               nb::sig(("def " + std::string(name) + "_like(input: Tensor, *, " SPILLWAY_KIND_TEXT).c_str()));
  };
  numbers("zeros", 0);
  numbers("ones", 1);
  numbers("empty", 0);
  module.def(
      "full",
      [](const Wholes& size, const nb::object& value, const nb::object& dtype, const nb::object& device, const Flag& requires_grad) {
        const double number = Real::read(value);
        Options options = options_from(dtype, device, requires_grad);
        if (!options.dtype) options.dtype = type_of_number(value);
        return fresh(shape_of(size.all()), options, [=](const Shape& s, DType t) { return full(s, number, t); });
      },
      nb::arg("size"), nb::arg("fill_value"), SPILLWAY_KIND,
      nb::sig("def full(size: int | collections.abc.Sequence[int], fill_value: float, " SPILLWAY_KIND_TEXT));
  module.def(
      "full_like",
      [](const Given& input, const nb::object& value, const nb::object& dtype, const nb::object& device, const Flag& requires_grad) {
        const double number = Real::read(value);
        Options options = options_from(dtype, device, requires_grad);
        if (!options.dtype) options.dtype = input.value().dtype();
        if (device.is_none()) options.device = input.value().device();
        return fresh(input.value().shape(), options, [=](const Shape& s, DType t) { return full(s, number, t); });
      },
      nb::arg("input"), nb::arg("fill_value"), nb::kw_only(), SPILLWAY_KIND,
      nb::sig("def full_like(input: Tensor, fill_value: float, *, " SPILLWAY_KIND_TEXT));
  module.def(
      "arange", range, nb::arg("start"), nb::arg("end") = nb::none(), nb::arg("step") = 1, SPILLWAY_KIND,
      nb::sig("def arange(start: float, end: float | None = None, step: float = 1, " SPILLWAY_KIND_TEXT),
      "The numbers start + i * step below end, for i = 0, 1, ..., as a tensor [N]; arange(n) gives 0 to n - 1. i64 if all are whole.");
  module.def("eye", eye, nb::arg("n"), nb::arg("m") = nb::none(), nb::kw_only(), SPILLWAY_KIND,
             nb::sig("def eye(n: int, m: int | None = None, *, " SPILLWAY_KIND_TEXT), "The identity matrix.");
  module.def("linspace", linspace, nb::arg("start"), nb::arg("end"), nb::arg("steps"), nb::kw_only(), SPILLWAY_KIND,
             nb::sig("def linspace(start: float, end: float, steps: int, *, " SPILLWAY_KIND_TEXT),
             "Numbers at one distance from start to end.");
  module.def(
      "randn",
      [](const Wholes& shape, const Seed& seed, const nb::object& dtype, const nb::object& device, const Flag& requires_grad) {
        const RandomKey key{seed};
        return fresh(shape_of(shape.all()), options_from(dtype, device, requires_grad),
                     [=](const Shape& s, DType t) { return randn(s, key, t); });
      },
      nb::arg("shape"), nb::kw_only(), nb::arg("seed"), SPILLWAY_KIND,
      nb::sig("def randn(shape: int | collections.abc.Sequence[int], *, seed: int, " SPILLWAY_KIND_TEXT),
      "Standard normal numbers that depend only on the seed and on an element's index: there is no global random generator.");
  module.def(
      "uniform",
      [](const Wholes& shape, const Real& lowest, const Real& highest, const Seed& seed, const nb::object& dtype, const nb::object& device,
         const Flag& requires_grad) {
        const double from = lowest, to = highest;
        const RandomKey key{seed};
        return fresh(shape_of(shape.all()), options_from(dtype, device, requires_grad),
                     [=](const Shape& s, DType t) { return uniform(s, key, from, to, t); });
      },
      nb::arg("shape"), nb::arg("lowest") = 0.0, nb::arg("highest") = 1.0, nb::kw_only(), nb::arg("seed"), SPILLWAY_KIND,
      nb::sig("def uniform(shape: int | collections.abc.Sequence[int], lowest: float = 0.0, highest: float = 1.0, *, seed: "
              "int, " SPILLWAY_KIND_TEXT),
      "Numbers uniform in [lowest, highest) that depend only on the seed and on an element's index.");
}

}  // namespace spillway::python
