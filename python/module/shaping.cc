// Binds the operations that move elements without computing: reshape, permute, pad and others. As in PyTorch, a result shares the tensor's
// memory where it can, unless it is recorded.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>

#include "autograd/tape.h"
#include "ops/layout/shape.h"
#include "ops/stretch.h"
#include "python/module/elements.h"
#include "python/module/home.h"
#include "python/module/operand.h"

namespace spillway::python {
namespace {

// Reads the numbers of both reshape(2, 3) and reshape((2, 3)).
Wholes numbers_in(const nb::args& args) {
  if (args.size() != 1) return Wholes::read(args);
  return Wholes::read(args[0]);
}

std::vector<i64> sizes_of(const Array& x) {
  const auto extents = x.value().shape().extents();
  return {extents.begin(), extents.end()};
}

// Replaces an extent of -1 by the extent that makes the number of elements match.
Shape completed(const Tensor& x, std::vector<i64> extents) {
  const auto open = std::ranges::find(extents, -1);
  if (open != extents.end()) {
    *open = 1;
    const i64 others = shape_of(extents).elems();
    *open = others != 0 ? x.elems() / others : 0;
  }
  const Shape shape = shape_of(extents);
  if (shape.elems() != x.elems())
    throw WrongValue("reshape: expected a shape of " + std::to_string(x.elems()) + " elements, got " + to_string(shape));
  return shape;
}

bool records(const Array& x) { return x.ends_with_forward() || (x.needs_gradient() && recording()); }

// Returns a tensor as another shape: the same memory if the strides allow it.
Array reshaped(const Array& x, const Shape& shape) {
  const Tensor value = x.value();
  if (!records(x)) {
    std::vector<i64> before, after;  // the axes before and after, without axes of one element, which may be added and removed
    for (const i64 extent : value.shape().extents()) {
      if (extent != 1) before.push_back(extent);
    }
    for (const i64 extent : shape.extents()) {
      if (extent != 1) after.push_back(extent);
    }
    if (value.is_contiguous() || before == after) return constant(value.reshape(shape));
  }
  Array y = apply([&](const Variable& v) { return ops::reshape(v, shape); }, x);
  y.is_copy = y.value().storage() != value.storage();
  return y;
}

Tensor permuted(const Tensor& x, const std::vector<int>& axes) {
  Tensor y = x;  // the loop permutes the axes of y by swapping neighbouring axes
  std::vector<int> now(static_cast<size_t>(x.rank()));
  std::iota(now.begin(), now.end(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto at = static_cast<size_t>(std::ranges::find(now, axes[i]) - now.begin());
    for (size_t j = at; j > i; --j) {
      y = y.transpose(static_cast<int>(j) - 1, static_cast<int>(j));
      std::swap(now[j - 1], now[j]);
    }
  }
  return y;
}

Array reordered(const Array& x, std::vector<int> axes) {
  if (std::ssize(axes) != x.value().rank())
    throw WrongValue("permute: expected one entry for each of " + std::to_string(x.value().rank()) + " axes, got " +
                     std::to_string(axes.size()));
  for (int& axis : axes) axis = from_front(x, axis);
  std::vector<int> sorted = axes;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) throw WrongValue("permute: expected each axis once, got one twice");
  if (!records(x)) return constant(permuted(x.value(), axes));
  Array y = apply([&](const Variable& v) { return ops::permute(v, axes); }, x);
  y.is_copy = true;
  return y;
}

Array swapped(const Array& x, const Whole& first, const Whole& second) {
  std::vector<int> axes(static_cast<size_t>(x.value().rank()));
  std::iota(axes.begin(), axes.end(), 0);
  const int a = from_front(x, first), b = from_front(x, second);
  if (!axes.empty()) std::swap(axes[static_cast<size_t>(a)], axes[static_cast<size_t>(b)]);
  return reordered(x, axes);
}

Array last_two_swapped(const Array& x) {
  const int rank = x.value().rank();
  if (rank < 2) return x;
  std::vector<int> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[axes.size() - 2], axes[axes.size() - 1]);
  return reordered(x, axes);
}

// Returns the range [begin, end) of an axis.
Array part_of(const Array& x, int axis, i64 begin, i64 end) {
  if (!records(x)) return constant(x.value().slice(axis, begin, end));
  Array y = apply([&](const Variable& v) { return ops::slice(v, axis, begin, end); }, x);
  y.is_copy = true;
  return y;
}

nb::tuple cut_parts(const Array& x, int axis, const std::vector<i64>& extents) {
  if (x.value().rank() == 0) throw WrongValue("split: expected a tensor with axes, got a single number");
  nb::list parts;
  i64 begin = 0;
  for (const i64 extent : extents) {
    parts.append(part_of(x, axis, begin, begin + extent));
    begin += extent;
  }
  return nb::tuple(parts);
}

nb::tuple split(const Given& given, const Wholes& sizes, const nb::object& size, const Whole& dim) {
  const Array& x = given;
  const int axis = from_front(x, dim);
  const i64 extent = x.value().rank() > 0 ? x.value().size(axis) : 0;
  std::vector<i64> extents = sizes.all();
  if (!PySequence_Check(size.ptr())) {
    const i64 each = extents[0];
    if (each < 1) throw WrongValue("split: expected parts of at least 1 element, got " + std::to_string(each));
    extents.clear();
    for (i64 begin = 0; begin < extent; begin += each) extents.push_back(std::min(each, extent - begin));
    if (extent == 0) extents.push_back(0);
  }
  for (const i64 one : extents) {
    if (one < 0) throw WrongValue("split: expected extents of at least 0, got " + std::to_string(one));
  }
  if (std::accumulate(extents.begin(), extents.end(), i64{0}) != extent)
    throw WrongValue("split: expected extents that add up to " + std::to_string(extent) + ", the extent of the axis, got others");
  return cut_parts(x, axis, extents);
}

nb::tuple chunk(const Given& given, const Whole& chunks, const Whole& dim) {
  const Array& x = given;
  const int axis = from_front(x, dim);
  const i64 count = chunks, extent = x.value().rank() > 0 ? x.value().size(axis) : 0;
  if (count < 1) throw WrongValue("chunk: expected at least 1 part, got " + std::to_string(count));
  const i64 each = std::max<i64>((extent + count - 1) / count, 1);
  std::vector<i64> extents;
  for (i64 begin = 0; begin < extent; begin += each) extents.push_back(std::min(each, extent - begin));
  return cut_parts(x, axis, extents);
}

Array expanded(const Array& x, std::vector<i64> extents) {
  const Shape from = x.value().shape();
  const i64 fresh = std::ssize(extents) - from.rank();
  if (fresh < 0)
    throw WrongValue("expand: expected at least " + std::to_string(from.rank()) + " extents, got " + std::to_string(extents.size()));
  for (i64 i = 0; i < std::ssize(extents); ++i) {
    if (extents[static_cast<size_t>(i)] == -1 && i >= fresh) extents[static_cast<size_t>(i)] = from[static_cast<int>(i - fresh)];
  }
  const Shape shape = shape_of(extents);
  Array y = apply(
      [&](const Variable& v) -> Variable {
        autograd::Recorder recorder({v}, "expand");
        return recorder.output(stretched(v.value, shape), [from](autograd::Backward& b) { b.pass(0, ops::sum_to(b.gradient(), from)); });
      },
      x);
  y.is_copy = !(shape == from);
  return y;
}

Array repeated(const Array& x, const std::vector<i64>& times) {
  const int rank = x.value().rank();
  if (std::ssize(times) < rank)
    throw WrongValue("repeat: expected at least " + std::to_string(rank) + " numbers, got " + std::to_string(times.size()));
  std::vector<i64> shape(times.size() - static_cast<size_t>(rank), 1);
  for (const i64 extent : sizes_of(x)) shape.push_back(extent);
  Array y = reshaped(x, shape_of(shape));
  for (size_t axis = 0; axis < times.size(); ++axis) {
    if (times[axis] < 0) throw WrongValue("repeat: expected numbers of at least 0, got " + std::to_string(times[axis]));
    if (times[axis] == 1) continue;
    const int at = static_cast<int>(axis);
    if (times[axis] == 0) {
      y = part_of(y, at, 0, 0);
      continue;
    }
    const std::vector<const Array*> parts(static_cast<size_t>(times[axis]), &y);
    y = apply_to(parts, [&](const std::vector<Variable>& v) { return ops::concat(v, at); });
  }
  if (y.value().storage() == x.value().storage()) y = apply([](const Variable& v) -> Variable { return converted(v.value, v.dtype()); }, y);
  y.is_copy = false;
  return y;
}

Array squeezed(const Array& x, const std::optional<Wholes>& dim) {
  std::vector<int> left_out;
  if (dim) {
    for (const i64 axis : dim->all()) left_out.push_back(from_front(x, axis));
  }
  std::vector<i64> extents;
  for (int axis = 0; axis < x.value().rank(); ++axis) {
    const bool named = !dim || std::ranges::find(left_out, axis) != left_out.end();
    if (x.value().size(axis) != 1 || !named) extents.push_back(x.value().size(axis));
  }
  return reshaped(x, shape_of(extents));
}

Array unsqueezed(const Array& x, const Whole& dim) {
  std::vector<i64> extents = sizes_of(x);
  const i64 rank = std::ssize(extents) + 1, at = dim;
  if (at < -rank || at >= rank)
    throw WrongIndex("dim: expected an axis from " + std::to_string(-rank) + " to " + std::to_string(rank - 1) + ", got " +
                     std::to_string(at));
  extents.insert(extents.begin() + (at < 0 ? at + rank : at), 1);
  return reshaped(x, shape_of(extents));
}

Array flattened(const Array& x, const Whole& start, const Whole& end) {
  if (x.value().rank() == 0) return reshaped(x, Shape{1});
  const int first = from_front(x, start), last = from_front(x, end);
  if (first > last) throw WrongValue("flatten: expected start_dim to be at most end_dim, got a larger one");
  std::vector<i64> extents;
  for (int axis = 0; axis < x.value().rank(); ++axis) {
    if (axis > first && axis <= last) {
      extents.back() *= x.value().size(axis);
    } else {
      extents.push_back(x.value().size(axis));
    }
  }
  return reshaped(x, shape_of(extents));
}

// The bound that stands for the end of an axis: beyond every extent, but so small that adding it to an extent does not overflow 64 bits.
constexpr i64 kFar = i64{1} << 59;

std::vector<ops::Padding> paddings_in(const nb::object& given) {
  const char* const expected = "paddings: expected pairs (before, after) in a list, got something else";
  std::vector<ops::Padding> all;
  for (const nb::handle one : iterator_of(given, expected)) {
    const std::vector<i64> pair = Wholes::read(one).all();
    if (pair.size() != 2) throw WrongType(expected);
    all.push_back({std::min(pair[0], kFar), std::min(pair[1], kFar)});
    if (all.size() > Shape::kMaxRank) throw WrongValue("paddings: expected at most 6 pairs, got more");
  }
  return all;
}

// Joins tensors along an axis. The result has the type to which all their types can be converted.
Array joined(const nb::object& given, const std::optional<Whole>& dim, const std::optional<Whole>& axis,
             Variable (*op)(const std::vector<Variable>&, int), bool fresh_axis) {
  std::vector<Array> parts = arrays_in(given, "tensors");
  if (parts.empty()) throw WrongValue("tensors: expected at least one tensor, got none");
  if (dim && axis) throw WrongValue("dim: expected dim or axis, which mean the same, got both");
  const std::optional<Whole>& which = dim ? dim : axis;
  const i64 at = which ? static_cast<i64>(*which) : 0, rank = parts[0].value().rank() + (fresh_axis ? 1 : 0);
  if (at < -rank || at >= rank) {
    if (rank == 0) throw WrongValue("cat: expected tensors with axes, got a single number: use stack()");
    throw WrongIndex("dim: expected an axis from " + std::to_string(-rank) + " to " + std::to_string(rank - 1) + ", got " +
                     std::to_string(at));
  }
  DType dtype = parts[0].value().dtype();
  std::vector<const Array*> all;
  for (const Array& part : parts) {
    dtype = wider_of(dtype, part.value().dtype());
    all.push_back(&part);
  }
  return apply_to(all, [&](const std::vector<Variable>& given_parts) {
    std::vector<Variable> same;
    for (const Variable& v : given_parts) same.push_back(as_type(v, dtype));
    return op(same, static_cast<int>(at));
  });
}

// Applies an operation on floats to a tensor of any type. Whole numbers are moved as f64 numbers.
template <class Op>
Array moved_elements(const Array& x, const Op& op) {
  return apply(
      [&](const Variable& v) -> Variable {
        if (is_floating(v.dtype())) return op(v);
        return converted(op(Variable(converted(v.value, DType::f64, Keep::whole))).value, v.dtype());
      },
      x);
}

void bind_axes(nb::module_& module, nb::class_<Array>& tensor) {
  const Home home{module, tensor};
  const auto reshape = [](const Given& x, const nb::args& shape) { return reshaped(x, completed(x.value(), numbers_in(shape).all())); };
  tensor.def("reshape", reshape, nb::sig("def reshape(self, *shape: int | collections.abc.Sequence[int]) -> Tensor"),
             "The same elements in the same order; one extent may be -1.");
  tensor.def(
      "view",
      [](const Given& x, const nb::args& shape) {
        if (shape.size() == 1 && PyUnicode_Check(shape[0].ptr())) throw WrongType("view: expected a shape, got a dtype: use to()");
        if (!x.value().is_contiguous())
          throw WrongValue("view: expected a tensor whose elements lie in their order, got one with other strides: use reshape()");
        return reshaped(x, completed(x.value(), numbers_in(shape).all()));
      },
      nb::sig("def view(self, *shape: int | collections.abc.Sequence[int]) -> Tensor"), "reshape() of a contiguous tensor.");
  module.def(
      "reshape", [](const Given& x, const Wholes& shape) { return reshaped(x, completed(x.value(), shape.all())); }, nb::arg("input"),
      nb::arg("shape"));
  tensor.def(
      "permute", [](const Given& x, const nb::args& dims) { return reordered(x, numbers_in(dims).small()); },
      nb::sig("def permute(self, *dims: int | collections.abc.Sequence[int]) -> Tensor"), "Axis i of the result is axis dims[i].");
  module.def(
      "permute", [](const Given& x, const Wholes& dims) { return reordered(x, dims.small()); }, nb::arg("input"), nb::arg("dims"));
  for (const char* name : {"transpose", "swapaxes"}) {
    home.def(
        name, [](const Given& x, const Whole& a, const Whole& b) { return swapped(x, a, b); }, nb::arg("dim0"), nb::arg("dim1"));
  }
  home.def("t", [](const Given& x) {
    if (x.value().rank() > 2) throw WrongValue("t: expected a tensor of at most 2 axes, got shape " + to_string(x.value().shape()));
    return last_two_swapped(x);
  });
  tensor.def_prop_ro(
      "T", [](const Given& x) { return last_two_swapped(x); }, "Swaps the last two axes.");
  tensor.def_prop_ro(
      "mT",
      [](const Given& x) {
        if (x.value().rank() < 2) throw WrongValue("mT: expected a tensor of at least 2 axes, got shape " + to_string(x.value().shape()));
        return last_two_swapped(x);
      },
      "Swaps the last two axes.");
  home.def(
      "flatten", [](const Given& x, const Whole& start, const Whole& end) { return flattened(x, start, end); }, nb::arg("start_dim") = 0,
      nb::arg("end_dim") = -1);
  home.def(
      "squeeze", [](const Given& x, const std::optional<Wholes>& dim) { return squeezed(x, dim); }, nb::arg("dim") = nb::none(),
      "Without the axes of one element, or without those of `dim`.");
  home.def(
      "unsqueeze", [](const Given& x, const Whole& dim) { return unsqueezed(x, dim); }, nb::arg("dim"), "With a new axis of one element.");
  tensor.def(
      "expand", [](const Given& x, const nb::args& sizes) { return expanded(x, numbers_in(sizes).all()); },
      nb::sig("def expand(self, *sizes: int | collections.abc.Sequence[int]) -> Tensor"), "A copy that is broadcast; -1 keeps an extent.");
  tensor.def(
      "expand_as", [](const Given& x, const Given& other) { return expanded(x, sizes_of(other)); }, nb::arg("other"));
  tensor.def(
      "view_as", [](const Given& x, const Given& other) { return reshaped(x, completed(x.value(), sizes_of(other))); }, nb::arg("other"));
  tensor.def(
      "repeat", [](const Given& x, const nb::args& times) { return repeated(x, numbers_in(times).all()); },
      nb::sig("def repeat(self, *times: int | collections.abc.Sequence[int]) -> Tensor"));
  const auto cut = [](const Given& x, const nb::object& size, const Whole& dim) { return split(x, Wholes::read(size), size, dim); };
  home.def("split", cut, nb::arg("split_size"), nb::arg("dim") = 0, "Parts of this extent, or of these extents, along dim.");
  home.def("chunk", chunk, nb::arg("chunks"), nb::arg("dim") = 0,
           "At most so many parts of one extent along dim; the last may be smaller.");
}

}  // namespace

void bind_shaping(nb::module_& module, nb::class_<Array>& tensor) {
  bind_axes(module, tensor);
  const Home home{module, tensor};
  home.def(
      "tril",
      [](const Given& x, const Whole& diagonal) {
        const i64 at = std::clamp<i64>(diagonal, -kFar, kFar);
        return moved_elements(x, [&](const Variable& v) { return ops::tril(v, at); });
      },
      nb::arg("diagonal") = 0);
  home.def(
      "triu",
      [](const Given& x, const Whole& diagonal) {
        const i64 at = std::clamp<i64>(diagonal, -kFar, kFar);
        return moved_elements(x, [&](const Variable& v) { return ops::triu(v, at); });
      },
      nb::arg("diagonal") = 0);
  for (const char* name : {"cat", "concat"}) {
    module.def(
        name,
        [](const nb::object& parts, const std::optional<Whole>& dim, const std::optional<Whole>& axis) {
          return joined(parts, dim, axis, ops::concat, false);
        },
        nb::arg("tensors"), nb::arg("dim") = nb::none(), nb::kw_only(), nb::arg("axis") = nb::none(),
        nb::sig(("def " + std::string(name) +
                 "(tensors: collections.abc.Iterable[Tensor], dim: int | None = None, *, axis: int | None = None) -> Tensor")
                    .c_str()),
        "Joins tensors along an axis, by default the first.");
  }
  module.def(
      "stack",
      [](const nb::object& parts, const std::optional<Whole>& dim, const std::optional<Whole>& axis) {
        return joined(parts, dim, axis, ops::stack, true);
      },
      nb::arg("tensors"), nb::arg("dim") = nb::none(), nb::kw_only(), nb::arg("axis") = nb::none(),
      nb::sig("def stack(tensors: collections.abc.Iterable[Tensor], dim: int | None = None, *, axis: int | None = None) -> Tensor"),
      "Joins tensors of one shape along a new axis, by default the first.");
  home.def(
      "flip",
      [](const Given& x, const Wholes& dims) {
        Array y = x;
        for (const int axis : dims.small()) {
          const int at = from_front(y, axis);
          std::vector<i64> places(static_cast<size_t>(y.value().size(at)));
          std::iota(places.rbegin(), places.rend(), 0);
          y = nb::cast<Array>(nb::cast(y).attr("index_select")(at, places));
        }
        return y;
      },
      nb::arg("dims"), "Turns these axes round.");
  home.def(
      "pad",
      [](const Given& x, const nb::object& paddings, const Real& fill) {
        const std::vector<ops::Padding> all = paddings_in(paddings);
        const double value = fill;
        return moved_elements(x, [&](const Variable& v) { return ops::pad(v, all, value); });
      },
      nb::arg("paddings"), nb::arg("value") = 0.0,
      "Each pair (before, after) pads one of the last axes; the last pair pads the last axis.");
}

}  // namespace spillway::python
