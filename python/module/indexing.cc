// Binds x[key], x[key] = values, iteration, and the methods that take elements by their places. A key has whole numbers, slices, None, ...,
// masks, and arrays or lists of whole numbers, with the meaning that they have in PyTorch.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "ops/dense.h"
#include "ops/layout/index.h"
#include "ops/layout/shape.h"
#include "ops/stretch.h"
#include "python/module/elements.h"
#include "python/module/home.h"
#include "python/module/in_place.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

// One part of an indexing key. `places` are the selected positions along its axis, or along all axes of a mask together.
struct Part {
  enum Kind { number, range, fresh, places } kind = number;
  i64 at = 0;                // the index, for a part of kind number
  ops::Range of_range = {};  // the range, for a part of kind range
  std::vector<i64> chosen;   // the selected positions in row-major order, for a part of kind places
  Shape shape;               // the shape of the selection, for a part of kind places
  int axes = 0;              // the number of the tensor's axes to which the part applies
  bool is_mask = false;
};

std::string out_of_range(i64 extent, i64 number) {
  return "index: expected the index of one of " + std::to_string(extent) + " elements, got " + std::to_string(number);
}

// Converts a Python slice to a Range. The axis has `extent` elements, and the Range has at most that many.
ops::Range slice_of(const nb::handle& key, i64 extent) {
  Py_ssize_t begin = 0, end = 0, step = 0;
  if (PySlice_Unpack(key.ptr(), &begin, &end, &step) != 0) {
    nb::python_error error;
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw error;
    throw WrongType("index: expected slices of whole numbers, got others: " + words_of(error.value()));
  }
  if (step < 1)
    throw WrongValue("index: expected slices whose step is above 0, got one whose step is not: use flip() to turn an axis round");
  const Py_ssize_t length = PySlice_AdjustIndices(extent, &begin, &end, step);
  if (length <= 1) return {begin, begin + length, 1};  // for so few elements the step does not matter, and it could overflow
  return {begin, begin + (length - 1) * step + 1, step};
}

bool is_place_list(const nb::handle& key) {
  return nb::isinstance<Array>(key) || PyList_Check(key.ptr()) || PyTuple_Check(key.ptr()) || nb::hasattr(key, "__dlpack__");
}

// Reads a mask or an array of whole numbers, of which the first axis is axis `axis` of x.
Part places_in(const nb::handle& key, const Tensor& x, int axis) {
  Tensor given = moved(copy_of(nb::borrow(key), "index"), Device::cpu());
  Part part;
  part.kind = Part::places;
  if (given.dtype() == DType::boolean || (given.dtype() == DType::uint8 && !is_untyped(nb::borrow(key)))) {
    part.is_mask = true;
    if (given.rank() == 0 && given.elems() == 1) {  // treated as a mask along a new axis of one element
      part.axes = 0;
      if (load_wide(given.raw(), given.dtype()) != 0) part.chosen.push_back(0);
      part.shape = Shape{std::ssize(part.chosen)};
      return part;
    }
    part.axes = given.rank();
    bool fits = axis + given.rank() <= x.rank();
    for (int i = 0; fits && i < given.rank(); ++i) fits = given.size(i) == x.size(axis + i);
    if (!fits)
      throw WrongIndex("index: expected a mask of the shape of the axes that it stands for, from axis " + std::to_string(axis) + " of " +
                       to_string(x.shape()) + " on, got a mask of shape " + to_string(given.shape()));
    for (i64 i = 0; i < given.elems(); ++i) {
      if (given.raw()[i] != std::byte{0}) part.chosen.push_back(i);
    }
    part.shape = Shape{std::ssize(part.chosen)};
    return part;
  }
  if (is_floating(given.dtype()) && given.elems() > 0)
    throw WrongIndex("index: expected whole numbers, a mask, slices, None and at most one ellipsis (...), got " +
                     std::string(to_string(given.dtype())) + " " + to_string(given.shape()));
  if (axis >= x.rank()) throw WrongIndex("index: expected at most " + std::to_string(x.rank()) + " indices, got more");
  const Running running(Device::cpu(), false, InForward::on_host);
  const Tensor numbers = converted(given, DType::int64);
  part.axes = 1;
  part.shape = given.shape();
  const i64 extent = x.size(axis);
  for (const i64 number : numbers.span<i64>()) {
    if (number < -extent || number >= extent) throw WrongIndex(out_of_range(extent, number));
    part.chosen.push_back(number < 0 ? number + extent : number);
  }
  return part;
}

std::vector<Part> key_parts(const nb::object& key, const Tensor& x) {
  const nb::tuple keys = nb::isinstance<nb::tuple>(key) ? nb::cast<nb::tuple>(key) : nb::make_tuple(key);
  size_t dots = 0;
  i64 named = 0;
  for (const nb::handle one : keys) {
    if (one.is(nb::ellipsis())) {
      ++dots;
    } else if (!one.is_none() && !PyBool_Check(one.ptr())) {
      const bool mask = nb::isinstance<Array>(one) && nb::cast<const Array&>(one).value().dtype() == DType::boolean;
      const bool other = !mask && !nb::isinstance<Array>(one) && nb::hasattr(one, "__dlpack__") && nb::hasattr(one, "ndim") &&
                         words_of(one.attr("dtype")).ends_with("bool");
      named += mask ? nb::cast<const Array&>(one).value().rank() : other ? Whole::read(one.attr("ndim")).small() : 1;
    }
  }
  if (dots > 1 || named > x.rank())
    throw WrongIndex("index: expected at most " + std::to_string(x.rank()) + " indices and one ..., got " + std::to_string(named));
  std::vector<Part> parts;
  int axis = 0;
  for (const nb::handle one : keys) {
    Part part;
    if (one.is(nb::ellipsis())) {
      part.kind = Part::range;
      part.axes = 1;
      for (i64 i = x.rank() - named; i > 0; --i, ++axis) {
        part.of_range = {0, x.size(axis), 1};
        parts.push_back(part);
      }
      continue;
    }
    if (one.is_none()) {
      part.kind = Part::fresh;
    } else if (PyBool_Check(one.ptr()) || is_place_list(one)) {
      part = places_in(one, x, axis);
      // A tensor that holds a single whole number counts as this number.
      if (part.axes == 1 && part.shape.rank() == 0) part.kind = Part::number, part.at = part.chosen[0];
    } else if (nb::isinstance<nb::slice>(one)) {
      part.kind = Part::range;
      part.axes = 1;
      part.of_range = slice_of(one, x.size(axis));
    } else {
      const Whole place = Whole::read(one);
      if (!place.is_whole())
        throw WrongIndex("index: expected whole numbers, a mask, slices, None and at most one ellipsis (...), got " + kind_of(one));
      const i64 extent = x.size(axis), number = place;
      if (number < -extent || number >= extent) throw WrongIndex(out_of_range(extent, number));
      part.axes = 1;
      part.at = number < 0 ? number + extent : number;
    }
    axis += part.axes;
    parts.push_back(std::move(part));
  }
  return parts;
}

// The rows that an indexing key selects. The tensor is seen as [rows, ...]: its first `axes` axes are merged into one.
struct Taken {
  int axes = 0;
  std::vector<i64> rows;
  Shape shape;  // shape of the result of indexing
};

struct Extent {
  std::vector<i64> extents;
  std::vector<i64> offsets;
};

Taken taken_by(const std::vector<Part>& parts, const Tensor& x) {
  Taken taken;
  int axis = 0;
  for (const Part& part : parts) {
    axis += part.axes;
    if (part.kind != Part::range || part.of_range.begin != 0 || part.of_range.end != x.size(axis - 1) || part.of_range.step != 1)
      taken.axes = axis;
  }
  std::vector<i64> steps(static_cast<size_t>(taken.axes) + 1, 1);
  for (int i = taken.axes; i-- > 0;) steps[static_cast<size_t>(i)] = steps[static_cast<size_t>(i) + 1] * x.size(i);
  // The axes of all index arrays form one group in the result: at the position of the first array if the arrays are adjacent in the key,
  // and in front otherwise.
  Extent places;
  bool any = false, apart = false, between = false;
  Shape common;
  for (const Part& part : parts) {
    if (part.kind != Part::places) {
      between = between || (any && part.kind != Part::number);
      continue;
    }
    apart = apart || (any && between);
    for (int i = 1; i <= std::min(common.rank(), part.shape.rank()); ++i) {
      if (common[-i] != part.shape[-i] && common[-i] != 1 && part.shape[-i] != 1)
        throw WrongIndex("index: expected index arrays that broadcast, got shapes " + to_string(common) + " and " + to_string(part.shape));
    }
    Shape wider = common.rank() >= part.shape.rank() ? common : part.shape;
    const Shape& other = common.rank() >= part.shape.rank() ? part.shape : common;
    for (int i = 1; i <= other.rank(); ++i) wider.set(-i, other[-i] == 1 ? wider[-i] : other[-i]);
    common = wider;
    any = true;
  }
  std::vector<Extent> extents;
  i64 base = 0;
  size_t at_front = 0;
  bool placed = false;
  axis = 0;
  places.extents.assign(common.extents().begin(), common.extents().end());
  places.offsets.assign(static_cast<size_t>(common.elems()), 0);
  for (const Part& part : parts) {
    const i64 step = steps[std::min(static_cast<size_t>(axis + part.axes), steps.size() - 1)];
    if (axis >= taken.axes && part.kind == Part::range) break;
    if (part.kind == Part::number) base += part.at * step;
    if (part.kind == Part::fresh) extents.push_back({{1}, {0}});
    if (part.kind == Part::range) {
      Extent one;
      for (i64 i = part.of_range.begin; i < part.of_range.end; i += part.of_range.step) one.offsets.push_back(i * step);
      one.extents = {std::ssize(one.offsets)};
      extents.push_back(std::move(one));
    }
    if (part.kind == Part::places) {
      if (!std::exchange(placed, true)) at_front = apart ? 0 : extents.size();
      const Running running(Device::cpu(), false, InForward::on_host);
      const Tensor chosen = stretched(tensor_of<i64>(std::span<const i64>(part.chosen), part.shape), common);
      const auto numbers = chosen.span<i64>();
      for (size_t i = 0; i < numbers.size(); ++i) places.offsets[i] += numbers[i] * step;
    }
    axis += part.axes;
  }
  if (placed) extents.insert(extents.begin() + static_cast<std::ptrdiff_t>(at_front), std::move(places));
  std::vector<i64> shape;
  taken.rows = {base};
  for (const Extent& one : extents) {
    shape.insert(shape.end(), one.extents.begin(), one.extents.end());
    std::vector<i64> rows;
    rows.reserve(taken.rows.size() * one.offsets.size());
    for (const i64 row : taken.rows) {
      for (const i64 offset : one.offsets) rows.push_back(row + offset);
    }
    taken.rows = std::move(rows);
  }
  for (int i = taken.axes; i < x.rank(); ++i) shape.push_back(x.size(i));
  taken.shape = shape_of(shape);
  return taken;
}

// Returns the shape of x seen as [rows, ...], with the first `axes` axes merged into one.
Shape rows_shape(const Shape& x, int axes) {
  i64 rows = 1;
  for (int i = 0; i < axes; ++i) rows *= x[i];
  std::vector<i64> extents{rows};
  for (int i = axes; i < x.rank(); ++i) extents.push_back(x[i]);
  if (extents.size() > Shape::kMaxRank) extents = {rows, x.elems() / std::max<i64>(rows, 1)};
  return Shape(std::span<const i64>(extents));
}

Variable taken_rows(const Variable& x, const Taken& taken) {
  const Shape rows = rows_shape(x.shape(), taken.axes);
  if (!is_floating(x.dtype())) return rows_at(ops::dense(x.value).reshape(rows), taken.rows).reshape(taken.shape);
  std::vector<i32> places;
  for (const i64 row : taken.rows) {
    if (!std::in_range<i32>(row)) throw WrongIndex("index: expected at most 2^31 elements to choose from, got more");
    places.push_back(static_cast<i32>(row));
  }
  const Tensor index = brought_here(tensor_of<i32>(std::span<const i32>(places), {std::ssize(places)}));
  return ops::reshape(ops::index_select(ops::reshape(x, rows), 0, index), taken.shape);
}

// Returns the selected part of x as a view of the same memory, if no part of the key requires a copy.
std::optional<Tensor> shared_part(const Tensor& x, const std::vector<Part>& parts) {
  Tensor view = x;
  std::vector<i64> extents;
  int axis = 0;
  for (const Part& part : parts) {
    if (part.kind == Part::places || (part.kind == Part::range && part.of_range.step != 1)) return std::nullopt;
    if (part.kind == Part::fresh) extents.push_back(1);
    if (part.kind == Part::number) view = view.slice(axis, part.at, part.at + 1);
    if (part.kind == Part::range) {
      view = view.slice(axis, part.of_range.begin, part.of_range.end);
      extents.push_back(view.size(axis));
    }
    axis += part.axes;
  }
  for (; axis < x.rank(); ++axis) extents.push_back(x.size(axis));
  return view.reshape(shape_of(extents));
}

Array picked(const Array& given, const nb::object& key) {
  const Array self = given;
  const std::vector<Part> parts = key_parts(key, self.value());
  const bool plain = std::ranges::none_of(parts, [](const Part& part) { return part.kind == Part::places; });
  if (plain && !self.ends_with_forward() && !(self.needs_gradient() && recording())) {
    if (const auto view = shared_part(self.value(), parts)) return constant(*view);
  }
  Array result;
  if (plain) {
    std::vector<std::variant<i64, ops::Range>> places;
    std::vector<i64> extents;
    int axis = 0;
    for (const Part& part : parts) {
      if (part.kind == Part::number) places.emplace_back(part.at);
      if (part.kind == Part::range) {
        places.emplace_back(part.of_range);
        extents.push_back((part.of_range.end - part.of_range.begin + part.of_range.step - 1) / part.of_range.step);
      }
      if (part.kind == Part::fresh) extents.push_back(1);
      axis += part.axes;
    }
    for (; axis < self.value().rank(); ++axis) extents.push_back(self.value().size(axis));
    const Shape shape = shape_of(extents);
    const bool floats = is_floating(self.value().dtype());
    result = apply(
        [&](const Variable& x) { return floats ? ops::reshape(ops::index(x, places), shape) : taken_rows(x, taken_by(parts, x.value)); },
        self);
    result.is_copy = true;  // PyTorch's result would be a view of the tensor's memory
    return result;
  }
  const Taken taken = taken_by(parts, self.value());
  return apply([&](const Variable& x) { return taken_rows(x, taken); }, self);
}

// Returns a copy of x in which `values` replace the rows that `taken` selects.
Variable replaced(const Variable& x, const Variable& values, const Taken& taken) {
  const Shape rows = rows_shape(x.shape(), taken.axes);
  Shape shape = rows;
  shape.set(0, std::ssize(taken.rows));
  const Variable same = as_type(values, x.dtype());
  const Tensor wide = stretched(same.value, taken.shape).reshape(shape);
  const Tensor y = with_rows(ops::dense(x.value).reshape(rows), taken.rows, wide).reshape(x.shape());
  autograd::Recorder recorder({x, same}, "index_put");
  return recorder.output(y, [=, from = x.shape(), own = same.shape()](autograd::Backward& b) {
    const Tensor dy = b.gradient().reshape(rows);
    if (b.needs(0)) {
      b.pass(0, with_rows(dy, taken.rows, zeros(shape, dy.dtype())).reshape(from));
    }
    if (b.needs(1)) b.pass(1, ops::sum_to(rows_at(dy, taken.rows).reshape(taken.shape), own));
  });
}

// Returns the values without axes of one element before the axes that they are assigned to.
Array without_leading_ones(const Array& values, int rank) {
  const Shape shape = values.value().shape();
  int first = 0;
  while (shape.rank() - first > rank && shape[first] == 1) ++first;
  if (first == 0) return values;
  const Shape wanted(shape.extents().subspan(static_cast<size_t>(first)));
  return apply([&](const Variable& v) { return ops::reshape(v, wanted); }, values);
}

void assign(Array& self, const nb::object& key, const nb::object& value) {
  check_writable(self, "x[key] = values");
  if (!Operand::accepts(value)) throw WrongType("x[key] = values: expected a number, a tensor, an array or a list, got " + kind_of(value));
  const Side side = side_of(value, self);
  const std::vector<Part> parts = key_parts(key, self.value());
  const Taken taken = taken_by(parts, self.value());
  const Array now = before_write(self);
  const DType dtype = self.value().dtype();
  Array values = side.array;
  if (!side.is_number) {
    if (values.value().device() != self.value().device()) values = constant(moved(values.value(), self.value().device()));
    values = without_leading_ones(values, taken.shape.rank());
    const Shape& given = values.value().shape();
    bool fits = given.rank() <= taken.shape.rank();
    for (int i = 1; fits && i <= given.rank(); ++i) fits = given[-i] == 1 || given[-i] == taken.shape[-i];
    if (!fits)
      throw WrongValue("x[key] = values: expected values that broadcast to shape " + to_string(taken.shape) +
                       ", which x[key] has, got shape " + to_string(given));
  }
  const auto places = std::ranges::count_if(parts, [](const Part& part) { return part.kind == Part::places; });
  const bool by_mask = places == 1 && std::ranges::any_of(parts, &Part::is_mask);
  const bool fills = by_mask && !side.is_number && values.value().elems() == 1;
  if (places > 0 && !fills && nb::isinstance<Array>(value) && values.value().dtype() != dtype)
    throw WrongValue("x[key] = values: expected values of type " + std::string(to_string(dtype)) +
                     ", which x has, for a key with places, got " + std::string(to_string(values.value().dtype())) +
                     ": convert them, with values.to(x.dtype)");
  if (taken.shape.elems() == 0) {  // with no elements to assign, a number is still checked
    if (side.is_number) apply([&](const Variable&, const Variable& v) { return variable_of(side, v, dtype); }, now, values);
    return;
  }
  const bool recorded = recording() && (now.needs_gradient() || (!side.is_number && values.needs_gradient()));
  if (!recorded && self.value().is_contiguous() && !self.value().device().is_cuda()) {
    const Tensor to = self.value();
    const Running running(to.device(), to.bytes() >= kLongBytes);
    const Variable v = variable_of(side, values.variable(), dtype);
    Tensor from = stretched(v.value, taken.shape);
    if (from.storage() == to.storage()) from = converted(from, dtype);
    from = ops::dense(from);
    const Tensor all = to.reshape(rows_shape(to.shape(), taken.axes));
    const auto width = static_cast<size_t>(from.bytes()) / taken.rows.size();
    for (size_t i = 0; i < taken.rows.size(); ++i)
      std::memcpy(all.raw() + static_cast<size_t>(taken.rows[i]) * width, from.raw() + i * width, width);
    to.storage()->written();
    return;
  }
  const Array all =
      apply([&](const Variable& x, const Variable& v) { return replaced(x, variable_of(side, v, dtype), taken); }, now, values);
  write(self, all, "x[key] = values", true);
}

nb::object rows(const Array& self) {
  if (self.value().rank() == 0) throw WrongType("iteration over a 0-d tensor: expected a tensor with axes, got a single number");
  nb::list all;
  for (i64 i = 0; i < self.value().size(0); ++i) all.append(picked(self, nb::int_(i)));
  return nb::steal(PyObject_GetIter(all.ptr()));
}

// Returns the indices as int32, each in [0, extent).
Tensor checked_places(const nb::object& index, i64 extent) {
  const Tensor places = whole_numbers(index, "index");
  if (!places.device().is_cuda() && !places.device().is_meta()) {
    for (const i32 place : ops::dense(places).span<i32>()) {
      if (place < 0 || place >= extent) throw WrongIndex(out_of_range(extent, place));
    }
  }
  return places;
}

Array taken_along(const Array& x, const Whole& dim, const nb::object& index, bool each) {
  const int axis = from_front(x, dim);
  const Tensor places = checked_places(index, x.value().rank() == 0 ? 1 : x.value().size(axis));
  return apply(
      [&](const Variable& v) -> Variable {
        const Tensor here = brought_here(places);
        const bool floats = is_floating(v.dtype());
        // Whole numbers are moved as int64. The ops move these 64 bits as if they were f64 numbers.
        const Variable u = floats ? v : Variable(converted(v.value, DType::int64).reinterpret(v.shape(), DType::f64));
        const Tensor flat = each ? here : here.reshape({here.elems()});
        Variable y;
        if (each) {
          // gather() may take an index that is smaller than x along the other axes, so x is cut to its size.
          Variable part = u;
          for (int i = 0; i < v.shape().rank() && i < here.rank(); ++i) {
            if (i != axis && here.size(i) < v.shape()[i]) part = ops::slice(part, i, 0, here.size(i));
          }
          y = ops::gather(part, axis, flat);
        } else {
          y = ops::index_select(u, axis, flat);
        }
        return floats ? y : Variable(converted(y.value.reinterpret(y.shape(), DType::int64), v.dtype()));
      },
      x);
}

Array nonzero(const Array& x) {
  const Tensor here = moved(readable(x), Device::cpu());
  const Running running(Device::cpu(), here.bytes() >= kLongBytes, InForward::on_host);
  const Tensor mask = converted(here, DType::boolean);
  const auto set = mask.span<bool>();
  std::vector<i64> places;
  for (i64 i = 0; i < std::ssize(set); ++i) {
    if (!set[static_cast<size_t>(i)]) continue;
    i64 rest = i, step = mask.elems();
    for (int axis = 0; axis < mask.rank(); ++axis) {
      step /= mask.size(axis);
      places.push_back(rest / step);
      rest %= step;
    }
  }
  i64 count = 0;
  for (const bool one : set) count += one;
  return constant(tensor_of<i64>(std::span<const i64>(places), {count, mask.rank()}));
}

}  // namespace

void bind_indexing(nb::module_& module, nb::class_<Array>& tensor) {
  tensor.def("__getitem__", picked, nb::arg("key").none(), nb::sig("def __getitem__(self, key: object, /) -> Tensor"));
  tensor.def("__setitem__", assign, nb::arg("key").none(), nb::arg("values").none(),
             nb::sig("def __setitem__(self, key: object, values: object, /) -> None"));
  tensor.def("__iter__", rows, nb::sig("def __iter__(self) -> collections.abc.Iterator[Tensor]"));
  tensor.def(
      "unbind",
      [](const Given& x, const Whole& dim) {
        const Array& self = x;
        if (self.value().rank() == 0) throw WrongIndex("unbind: expected a tensor with axes, got a single number");
        const int axis = from_front(self, dim);
        nb::list all;
        for (i64 i = 0; i < self.value().size(axis); ++i) {
          nb::list key;
          for (int before = 0; before < axis; ++before) key.append(nb::slice(nb::none(), nb::none(), nb::none()));
          key.append(nb::int_(i));
          all.append(picked(self, nb::tuple(key)));
        }
        return nb::tuple(all);
      },
      nb::arg("dim") = 0, nb::sig("def unbind(self, dim: int = 0) -> tuple[Tensor, ...]"));
  const auto select = [](const Given& x, const Whole& dim, const nb::object& index) { return taken_along(x, dim, index, false); };
  const auto gather = [](const Given& x, const Whole& dim, const nb::object& index) { return taken_along(x, dim, index, true); };
  const auto not_zero = [](const Given& x) { return nonzero(x); };
  module.def("index_select", select, nb::arg("input"), nb::arg("dim"), nb::arg("index"), "The slices of input at index[K] along dim.");
  tensor.def("index_select", select, nb::arg("dim"), nb::arg("index"));
  module.def("gather", gather, nb::arg("input"), nb::arg("dim"), nb::arg("index"), "input[..., index[..., k, ...], ...] along dim.");
  tensor.def("gather", gather, nb::arg("dim"), nb::arg("index"));
  module.def("nonzero", not_zero, nb::arg("input"), "The places [N, rank] of the elements that are not 0.");
  tensor.def("nonzero", not_zero);
}

}  // namespace spillway::python
