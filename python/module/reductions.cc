// Binds sums, extremes and other results along axes, under PyTorch's names. The axes are `dim`, or `axis` as in NumPy.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "autograd/tape.h"
#include "base/error.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise.h"
#include "ops/layout/index.h"
#include "ops/layout/shape.h"
#include "ops/rows/axis.h"
#include "ops/rows/reduce.h"
#include "python/module/arithmetic.h"
#include "python/module/home.h"
#include "tensor/create.h"

namespace spillway::python {

int from_front(const Array& x, i64 axis) {
  const int rank = std::max(x.value().rank(), 1);
  if (axis < -rank || axis >= rank)
    throw WrongIndex("dim: expected an axis from " + std::to_string(-rank) + " to " + std::to_string(rank - 1) + ", got " +
                     std::to_string(axis));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::optional<int> one_of(const Array& x, const std::optional<Whole>& dim, const std::optional<Whole>& axis) {
  if (dim && axis) throw WrongValue("dim: expected dim or axis, which mean the same, got both");
  const std::optional<Whole>& given = dim ? dim : axis;
  return given ? std::optional(from_front(x, *given)) : std::nullopt;
}

namespace {

using Axes = std::optional<Wholes>;
using Kept = std::optional<Flag>;

// PyTorch's argument names come first; NumPy's must be given by keyword.
#define SPILLWAY_DIM nb::arg("dim") = nb::none(), nb::arg("keepdim") = false
#define SPILLWAY_AXIS nb::arg("axis") = nb::none(), nb::arg("keepdims") = nb::none()

// Returns the axes counted from the front; each may occur only once. An empty list stands for all axes.
std::vector<int> list_of(const Array& x, const Axes& dim, const Axes& axis) {
  if (dim && axis) throw WrongValue("dim: expected dim or axis, which mean the same, got both");
  const Axes& given = dim ? dim : axis;
  std::vector<int> list = given ? given->small() : std::vector<int>();
  for (int& one : list) one = from_front(x, one);
  std::ranges::sort(list);
  if (std::ranges::adjacent_find(list) != list.end()) throw WrongValue("dim: expected each axis once, got one twice");
  if (x.value().rank() == 0) list.clear();
  return list;
}

std::vector<int> all_or(const Array& x, std::vector<int> list) {
  if (!list.empty()) return list;
  list.resize(static_cast<size_t>(x.value().rank()));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

bool kept(const Flag& keepdim, const Kept& keepdims) { return keepdims ? static_cast<bool>(*keepdims) : static_cast<bool>(keepdim); }

// Returns y, the result of a reduction over all axes, with `rank` axes of one element each if `keep` is set.
Variable raised(const Variable& y, int rank, bool keep) {
  if (!keep) return y;
  std::vector<i64> ones(static_cast<size_t>(rank), 1);
  return ops::reshape(y, Shape(std::span<const i64>(ones)));
}

// Reduces x over the axes one after the other, the last axis first.
Variable each_axis(const Variable& x, std::vector<int> list, bool keep, Variable (*one)(const Variable&, int, bool),
                   Variable (*all)(const Variable&)) {
  if (list.empty()) return raised(all(x), x.shape().rank(), keep);
  std::ranges::sort(list, std::greater<>());
  Variable y = x;
  for (const int axis : list) y = one(y, axis, keep);
  return y;
}

std::optional<DType> type_in(const nb::object& dtype) {
  if (dtype.is_none()) return std::nullopt;
  return dtype_of(words_of(dtype));
}

Array total(const Array& x, const std::vector<int>& list, bool keep, std::optional<DType> dtype) {
  return apply(
      [&](const Variable& given) -> Variable {
        const Variable v = dtype ? as_type(given, *dtype) : given;
        if (is_floating(v.dtype())) return each_axis(v, list, keep, ops::sum, ops::sum);
        const Tensor sums = fold_whole(Fold::sum, v.value, all_or(x, list), keep);
        return dtype ? converted(sums, *dtype) : sums;
      },
      x);
}

Array average(const Array& x, const std::vector<int>& list, bool keep, std::optional<DType> dtype) {
  return apply(
      [&](const Variable& given) {
        const Variable v = dtype ? as_type(given, *dtype) : given;
        return each_axis(v, list, keep, ops::mean, ops::mean);
      },
      x);
}

// Returns the largest or the smallest elements along the axes. Equal elements share the gradient, as in PyTorch's amax().
Variable shared_extreme(const Variable& v, const std::vector<int>& list, bool keep, bool largest) {
  const Variable x(v.value);  // computing with x is not recorded for backward
  const Tensor best = (largest ? ops::max(x, list, true) : ops::min(x, list, true)).value;
  const Tensor y = keep ? best : (largest ? ops::max(x, list, false) : ops::min(x, list, false)).value;
  autograd::Recorder recorder({v}, largest ? "amax" : "amin");
  const auto kept_x = recorder.save(v), kept_best = recorder.save(best);
  return recorder.output(y, [=, dtype = v.dtype()](autograd::Backward& b) {
    const Variable extremes = b.saved(kept_best);
    const Variable equal = converted(ops::eq(b.saved(kept_x), extremes), dtype);
    const Variable share = ops::div(equal, each_axis(equal, list, true, ops::sum, ops::sum));
    b.pass(0, ops::mul(share, b.gradient().reshape(extremes.shape())).value);
  });
}

// Returns the largest or the smallest elements along the axes. For max() along one axis, the first of equal elements gets the gradient.
Array extreme(const Array& x, const std::vector<int>& list, bool keep, bool largest, bool shared) {
  return apply(
      [&](const Variable& v) -> Variable {
        if (!is_floating(v.dtype())) return fold_whole(largest ? Fold::max : Fold::min, v.value, all_or(x, list), keep);
        if (shared) return shared_extreme(v, list, keep, largest);
        return largest ? ops::max(v, list, keep) : ops::min(v, list, keep);
      },
      x);
}

Array place(const Array& x, std::optional<int> axis, bool keep, bool largest) {
  if (x.value().dtype() == DType::boolean)
    throw WrongValue("argmax and argmin: expected numbers, got a bool tensor: convert it, with x.long()");
  return apply(
      [&](const Variable& given) -> Variable {
        const int rank = given.shape().rank();
        const bool all = !axis || rank == 0;
        const Variable v =
            all ? Variable(given.value.is_contiguous() ? given.value.reshape({given.value.elems()})
                                                       : converted(given.value, given.dtype()).reshape({given.value.elems()}))
                : given;
        const int at = all ? 0 : *axis;
        const bool keeps = keep && !all;
        Tensor y;
        if (is_floating(v.dtype())) {
          y = converted(largest ? ops::argmax(v.value, at, keeps) : ops::argmin(v.value, at, keeps), DType::int64);
        } else {
          y = fold_whole(largest ? Fold::argmax : Fold::argmin, v.value, {at}, keeps);
        }
        return all && keep ? raised(y, rank, true) : Variable(y);
      },
      x);
}

// Returns the named tuple (values, indices).
nb::object pair_of(const Array& values, const Array& indices) {
  static auto* const type = new nb::object(nb::module_::import_("collections").attr("namedtuple")("ValuesAndIndices", "values indices"));
  return (*type)(values, indices);
}

// Returns bools as bytes with the values 0 and 1, and any other tensor unchanged.
Array as_bytes(const Array& x) {
  if (x.value().dtype() != DType::boolean) return x;
  return apply([](const Variable& v) { return as_type(v, DType::uint8); }, x);
}

// Implements max() and min(), which can be called in three ways: for the extreme of all elements, along an axis with indices, or of two
// tensors.
nb::object best(const Given& given, const nb::object& dim, const Flag& keepdim, const nb::object& axis, const Kept& keepdims,
                const nb::object& other, bool largest) {
  const Array& x = given;
  const nb::object& second = nb::isinstance<Array>(dim) ? dim : other;
  if (!second.is_none()) return nb::cast(arithmetic(largest ? Pairwise::maximum : Pairwise::minimum, side_of(x), side_of(second, x)));
  if (!dim.is_none() && !axis.is_none()) throw WrongValue("dim: expected dim or axis, which mean the same, got both");
  const nb::object& at = dim.is_none() ? axis : dim;
  if (at.is_none()) return nb::cast(extreme(x, {}, kept(keepdim, keepdims), largest, true));
  if (PySequence_Check(at.ptr()))
    throw WrongType(std::string("dim: expected one axis, got several: use ") + (largest ? "amax" : "amin") +
                    "(dim), which gives the values");
  const int one = from_front(x, Whole::read(at));
  const bool keep = kept(keepdim, keepdims);
  if (x.value().rank() == 0) return pair_of(extreme(x, {}, false, largest, false), place(as_bytes(x), std::nullopt, false, largest));
  return pair_of(extreme(x, {one}, keep, largest, false), place(as_bytes(x), one, keep, largest));
}

void check_floats(const char* name, const Array& x) {
  const DType dtype = x.value().dtype();
  if (!is_floating(dtype))
    throw WrongValue(std::string(name) + ": expected floats, got " + std::string(to_string(dtype)) +
                     ": convert them first, with x.float()");
}

double lowest_of(DType dtype) {
  if (dtype == DType::f64) return std::numeric_limits<double>::lowest();
  if (dtype == DType::f16) return -65504;
  return dtype == DType::bf16 ? -0x1.fep127 : static_cast<double>(std::numeric_limits<float>::lowest());
}

// Returns the `count` largest or smallest elements along an axis, in order, and their indices.
std::pair<Array, Array> ranked(const Array& x, i64 count, int axis, bool largest) {
  const DType type = x.value().dtype();
  Tensor index;
  const Array values = apply(
      [&](const Variable& given) {
        Variable v = is_floating(type) ? given : Variable(converted(given.value, DType::f64, Keep::whole));
        const Shape shape = v.shape();
        if (shape.rank() == 0) v = ops::reshape(v, Shape{1});
        const Variable own(v.value);  // computing with this copy is not recorded for backward
        const auto number = [&](double value) { return Variable(full({}, value, own.dtype())); };
        // NaN ranks before every number if the largest come first, and behind if the smallest do, also behind infinity.
        const Variable key = largest ? own
                                     : ops::where(ops::ne(own, own), number(-std::numeric_limits<double>::infinity()),
                                                  ops::maximum(ops::neg(own), number(lowest_of(own.dtype()))));
        const Tensor places = ops::topk(key, count, axis).index;
        const Variable y = as_type(ops::gather(v, axis, places), type);
        index = converted(places, DType::int64);
        if (shape.rank() > 0) return y;
        index = index.reshape(shape);
        return ops::reshape(y, shape);
      },
      x);
  return {values, made(index)};
}

// Returns the standard deviation, or the norm if `centered` is not set. As in PyTorch, the gradient is 0 where the square root is 0.
Variable root_of_squares(const Variable& v, const std::vector<int>& list, bool keep, double less, bool centered) {
  const Variable x(v.value);  // computing with x is not recorded for backward
  const Variable root = ops::sqrt(centered ? ops::var(x, list, less, true) : each_axis(ops::mul(x, x), list, true, ops::sum, ops::sum));
  std::vector<i64> extents;
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    if (!list.empty() && std::ranges::find(list, axis) == list.end()) extents.push_back(x.shape()[axis]);
  }
  autograd::Recorder recorder({v}, centered ? "std" : "norm");
  const auto kept_x = recorder.save(v), kept_root = recorder.save(root);
  const double count = static_cast<double>(x.value.elems()) / static_cast<double>(std::max<i64>(root.value.elems(), 1)) - less;
  const Tensor y = keep ? root.value : root.value.reshape(Shape(std::span<const i64>(extents)));
  return recorder.output(y, [=](autograd::Backward& b) {
    const Variable all = b.saved(kept_x), roots = b.saved(kept_root);
    const Variable part = centered ? ops::sub(all, each_axis(all, list, true, ops::mean, ops::mean)) : all;
    const Variable slope = ops::div(part, centered ? ops::scale(roots, count) : roots);
    const Variable masked = ops::masked_fill(slope, ops::eq(roots, 0.0), 0);
    b.pass(0, ops::mul(masked, b.gradient().reshape(roots.shape())).value);
  });
}

void bind_sums(const Home& home) {
  home.def(
      "sum",
      [](const Given& x, const Axes& dim, const Flag& keepdim, const Axes& axis, const Kept& keepdims, const nb::object& dtype) {
        return total(x, list_of(x, dim, axis), kept(keepdim, keepdims), type_in(dtype));
      },
      SPILLWAY_DIM, nb::kw_only(), SPILLWAY_AXIS, nb::arg("dtype") = nb::none(),
      "The sum over one axis, several, or all; i64 for whole numbers and bools.");
  home.def(
      "mean",
      [](const Given& x, const Axes& dim, const Flag& keepdim, const Axes& axis, const Kept& keepdims, const nb::object& dtype) {
        if (dtype.is_none()) check_floats("mean", x);
        return average(x, list_of(x, dim, axis), kept(keepdim, keepdims), type_in(dtype));
      },
      SPILLWAY_DIM, nb::kw_only(), SPILLWAY_AXIS, nb::arg("dtype") = nb::none(), "The mean over one axis, several, or all.");
  home.def(
      "prod",
      [](const Given& x, const Axes& dim, const Flag& keepdim, const Axes& axis, const Kept& keepdims) {
        const bool keep = kept(keepdim, keepdims);
        return apply(
            [&, list = all_or(x, list_of(x, dim, axis))](const Variable& v) -> Variable {
              if (v.needs_gradient())
                throw Error(ErrorCode::usage,
                            "[prod] expected a tensor without requires_grad, because prod() is not recorded: detach() it");
              return is_floating(v.dtype()) ? product_of(v.value, list, keep) : fold_whole(Fold::prod, v.value, list, keep);
            },
            x);
      },
      SPILLWAY_DIM, nb::kw_only(), SPILLWAY_AXIS, "The product over one axis or all.");
  for (const auto& [name, fold] : {std::pair{"any", Fold::any}, {"all", Fold::all}}) {
    home.def(
        name,
        [fold](const Given& x, const Axes& dim, const Flag& keepdim, const Axes& axis, const Kept& keepdims) {
          return apply(
              [&, list = all_or(x, list_of(x, dim, axis))](const Variable& v) -> Variable {
                const Tensor found = fold_whole(fold, converted(v.value, DType::boolean), list, kept(keepdim, keepdims));
                return v.dtype() == DType::uint8 ? converted(found, DType::uint8) : found;
              },
              x);
        },
        SPILLWAY_DIM, nb::kw_only(), SPILLWAY_AXIS);
  }
  for (const bool root : {false, true}) {
    home.def(
        root ? "std" : "var",
        [root](const Given& x, const nb::object& dim, const std::optional<Real>& correction, const Flag& keepdim, const Axes& axis,
               const Kept& keepdims, const std::optional<Flag>& unbiased) {
          check_floats(root ? "std" : "var", x);
          const bool is_flag = PyBool_Check(dim.ptr());  // in x.var(False) the first argument is the flag `unbiased`
          const std::optional<Flag> flag = is_flag ? std::optional(Flag::read(dim)) : unbiased;
          const double less = correction ? static_cast<double>(*correction) : !flag || *flag ? 1.0 : 0.0;
          const Axes at = is_flag || dim.is_none() ? Axes() : Axes(Wholes::read(dim));
          const bool keep = kept(keepdim, keepdims);
          return apply([&, list = list_of(x, at, axis)](
                           const Variable& v) { return root ? root_of_squares(v, list, keep, less, true) : ops::var(v, list, less, keep); },
                       x);
        },
        nb::arg("dim") = nb::none(), nb::kw_only(), nb::arg("correction") = nb::none(), nb::arg("keepdim") = false, SPILLWAY_AXIS,
        nb::arg("unbiased") = nb::none(),
        root ? "The square root of var()." : "The variance, sum((x - mean)^2) / (n - correction); correction is 1 by default.");
  }
  home.def(
      "logsumexp",
      [](const Given& x, const Axes& dim, const Flag& keepdim, const Axes& axis, const Kept& keepdims) {
        return apply(
            [&, list = list_of(x, dim, axis)](const Variable& v) {
              return ops::logsumexp(is_floating(v.dtype()) ? v : as_type(v, DType::f32), list, kept(keepdim, keepdims));
            },
            x);
      },
      SPILLWAY_DIM, nb::kw_only(), SPILLWAY_AXIS);
  home.def(
      "norm",
      [](const Given& x, const Real& p, const Axes& dim, const Flag& keepdim, const Axes& axis, const Kept& keepdims) {
        if (p != 2) throw WrongValue("norm: expected p = 2, got " + std::to_string(static_cast<double>(p)));
        return apply(
            [&, list = list_of(x, dim, axis)](const Variable& v) {
              if (!is_floating(v.dtype())) throw WrongValue("norm: expected floats, got " + std::string(to_string(v.dtype())));
              return root_of_squares(v, list, kept(keepdim, keepdims), 0, false);
            },
            x);
      },
      nb::arg("p") = 2, SPILLWAY_DIM, nb::kw_only(), SPILLWAY_AXIS, "The square root of the sum of squares.");
}

void bind_choices(const Home& home) {
  for (const bool largest : {true, false}) {
    home.def(
        largest ? "max" : "min",
        [largest](const Given& x, const nb::object& dim, const Flag& keepdim, const nb::object& axis, const Kept& keepdims,
                  const nb::object& other) { return best(x, dim, keepdim, axis, keepdims, other, largest); },
        SPILLWAY_DIM, nb::kw_only(), SPILLWAY_AXIS, nb::arg("other") = nb::none(),
        "Of all elements; along an axis, the named tuple (values, indices); or of each two elements of two tensors.");
    home.def(
        largest ? "amax" : "amin",
        [largest](const Given& x, const Axes& dim, const Flag& keepdim, const Axes& axis, const Kept& keepdims) {
          return extreme(x, list_of(x, dim, axis), kept(keepdim, keepdims), largest, true);
        },
        SPILLWAY_DIM, nb::kw_only(), SPILLWAY_AXIS, "Over one axis, several, or all.");
    home.def(
        largest ? "argmax" : "argmin",
        [largest](const Given& x, const std::optional<Whole>& dim, const Flag& keepdim, const std::optional<Whole>& axis,
                  const Kept& keepdims) { return place(x, one_of(x, dim, axis), kept(keepdim, keepdims), largest); },
        SPILLWAY_DIM, nb::kw_only(), SPILLWAY_AXIS,
        "The index of the first of these elements, i64; of all elements in their order if dim is None.");
  }
  const auto along = [&](const char* name, Variable (*op)(const Variable&, int)) {
    home.def(
        name,
        [op](const Given& x, const std::optional<Whole>& dim, const std::optional<Whole>& axis, const nb::object& dtype) {
          const int at = one_of(x, dim, axis).value_or(from_front(x, -1));
          const std::optional<DType> type = type_in(dtype);
          return apply(
              [&](const Variable& given) {
                const Variable v = type ? as_type(given, *type) : given;
                if (v.shape().rank() > 0) return op(v, at);
                return ops::reshape(op(ops::reshape(v, Shape{1}), 0), Shape());
              },
              x);
        },
        nb::arg("dim") = nb::none(), nb::kw_only(), nb::arg("axis") = nb::none(), nb::arg("dtype") = nb::none(),
        "Along one axis, by default the last.");
  };
  along("softmax", ops::softmax);
  along("log_softmax", ops::log_softmax);
  along("cumsum", [](const Variable& v, int axis) {
    return is_floating(v.dtype()) ? ops::cumsum(v, axis) : Variable(running_sums_of_whole(v.value, axis));
  });
  home.def(
      "topk",
      [](const Given& x, const Whole& k, const std::optional<Whole>& dim, const Flag& largest, const Flag&,
         const std::optional<Whole>& axis) {
        const auto [values, indices] = ranked(x, k, one_of(x, dim, axis).value_or(from_front(x, -1)), largest);
        return pair_of(values, indices);
      },
      nb::arg("k"), nb::arg("dim") = nb::none(), nb::arg("largest") = true, nb::arg("sorted") = true, nb::kw_only(),
      nb::arg("axis") = nb::none(), "The k largest elements in order, and their indices (i64).");
  const auto sorted = [](const Given& x, const std::optional<Whole>& dim, const Flag& descending, const std::optional<Whole>& axis) {
    const int at = one_of(x, dim, axis).value_or(from_front(x, -1));
    return ranked(x, x.value().rank() > 0 ? x.value().size(at) : 1, at, descending);
  };
  home.def(
      "sort",
      [sorted](const Given& x, const std::optional<Whole>& dim, const Flag& descending, const std::optional<Whole>& axis) {
        const auto [values, indices] = sorted(x, dim, descending, axis);
        return pair_of(values, indices);
      },
      nb::arg("dim") = nb::none(), nb::arg("descending") = false, nb::kw_only(), nb::arg("axis") = nb::none(),
      "The elements in order, and their indices (i64); equal elements keep their order.");
  home.def(
      "argsort",
      [sorted](const Given& x, const std::optional<Whole>& dim, const Flag& descending, const std::optional<Whole>& axis) {
        return sorted(x, dim, descending, axis).second;
      },
      nb::arg("dim") = nb::none(), nb::arg("descending") = false, nb::kw_only(), nb::arg("axis") = nb::none());
  home.def(
      "equal",
      [](const Given& x, const Given& y) {
        if (x.value().shape() != y.value().shape()) return false;
        const Array same = arithmetic(Pairwise::eq, side_of(x), side_of(y));
        const Array all =
            apply([&](const Variable& v) -> Variable { return fold_whole(Fold::all, v.value, all_or(same, {}), false); }, same);
        return nb::cast<bool>(nb::cast(all).attr("item")());
      },
      nb::arg("other"), "Whether the shapes and all elements are equal.");
  home.def(
      "allclose",
      [](const Given& x, const Given& y, const Real& rtol, const Real& atol, const Flag& equal_nan) {
        const Tensor first = moved(readable(x), Device::cpu()), second = moved(readable(y), Device::cpu());
        if (x.value().shape() != y.value().shape())
          throw WrongValue("allclose: expected two tensors of one shape, got " + to_string(x.value().shape()) + " and " +
                           to_string(y.value().shape()));
        const Running running(Device::cpu(), false, InForward::on_host);
        const std::vector<double> a = values_of(first), b = values_of(second);
        for (size_t i = 0; i < a.size(); ++i) {
          const bool near = a[i] == b[i] || (std::isfinite(b[i]) && std::abs(a[i] - b[i]) <= atol + rtol * std::abs(b[i])) ||
                            (equal_nan && std::isnan(a[i]) && std::isnan(b[i]));
          if (!near) return false;
        }
        return true;
      },
      nb::arg("other"), nb::arg("rtol") = 1e-5, nb::arg("atol") = 1e-8, nb::arg("equal_nan") = false);
}

}  // namespace

void bind_reductions(nb::module_& module, nb::class_<Array>& tensor) {
  const Home home{module, tensor};
  bind_sums(home);
  bind_choices(home);
}

}  // namespace spillway::python
