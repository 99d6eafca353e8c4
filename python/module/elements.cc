#include "python/module/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "device/memory_pool.h"
#include "kernels/dispatch.h"
#include "ops/dense.h"
#include "ops/stretch.h"
#include "python/module/arrays.h"

namespace spillway::python {
namespace {

// Returns the shape of the result of a reduction over some axes.
Shape folded_shape(const Shape& shape, const std::vector<int>& axes, bool keep) {
  std::vector<i64> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (std::ranges::find(axes, axis) == axes.end()) {
      extents.push_back(shape[axis]);
    } else if (keep) {
      extents.push_back(1);
    }
  }
  return Shape(std::span<const i64>(extents));
}

// Calls visit(i, j) for each element i of a tensor of shape `shape`, in order. j is the place of the element in another
// tensor, of which `steps` has one stride for each axis.
template <class Visit>
void walk(const Shape& shape, const std::vector<i64>& steps, const Visit& visit) {
  std::vector<i64> at(steps.size(), 0);
  const i64 elems = shape.elems();
  i64 other = 0;
  for (i64 i = 0; i < elems; ++i) {
    visit(i, other);
    for (int axis = shape.rank(); axis-- > 0;) {
      const auto a = static_cast<size_t>(axis);
      other += steps[a];
      if (++at[a] < shape[axis]) break;
      other -= steps[a] * shape[axis];
      at[a] = 0;
    }
  }
}

// Returns the strides with which walk() over x finds each element's position in the result of a reduction.
std::vector<i64> fold_steps(const Shape& shape, const std::vector<int>& axes) {
  std::vector<i64> steps(static_cast<size_t>(shape.rank()), 0);
  i64 step = 1;
  for (int axis = shape.rank(); axis-- > 0;) {
    if (std::ranges::find(axes, axis) != axes.end()) continue;
    steps[static_cast<size_t>(axis)] = step;
    step *= shape[axis];
  }
  return steps;
}

Tensor as_i64(const Tensor& x) { return x.dtype() == DType::int64 ? ops::dense(x) : converted(x, DType::int64); }

// Stores whole numbers as type T, with wraparound. As a bool, a number other than 0 is stored as 1.
void store(const std::vector<i64>& numbers, const Tensor& to) {
  const auto put = [&]<class T>(T) {
    const auto target = to.span<T>();
    for (size_t i = 0; i < target.size(); ++i) {
      if constexpr (std::is_same_v<T, bool>) {
        target[i] = numbers[i] != 0;
      } else {
        target[i] = static_cast<T>(numbers[i]);
      }
    }
  };
  if (to.dtype() == DType::int64) return put(i64());
  if (to.dtype() == DType::int32) return put(i32());
  if (to.dtype() == DType::uint8) return put(u8());
  put(bool());
}

i64 wrapped(u64 bits) { return static_cast<i64>(bits); }

i64 floor_div(i64 a, i64 b) {
  if (b == -1) return wrapped(0 - static_cast<u64>(a));  // computed without signs, since negating the smallest number would overflow
  const i64 quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// Returns base^exponent. A negative power of a whole number is 0, as for PyTorch's tensors, except for the bases 1 and -1.
i64 power(i64 base, i64 exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  u64 result = 1, factor = static_cast<u64>(base);
  for (; exponent > 0; exponent >>= 1, factor *= factor) {
    if (exponent & 1) result *= factor;
  }
  return wrapped(result);
}

i64 paired(Pairwise op, i64 a, i64 b) {
  const u64 u = static_cast<u64>(a), v = static_cast<u64>(b);
  switch (op) {
    case Pairwise::add:
      return wrapped(u + v);
    case Pairwise::sub:
      return wrapped(u - v);
    case Pairwise::mul:
      return wrapped(u * v);
    case Pairwise::floor_div:
      return floor_div(a, b);
    case Pairwise::remainder:
      return b == -1 ? 0 : a - floor_div(a, b) * b;
    case Pairwise::pow:
      return power(a, b);
    case Pairwise::maximum:
      return std::max(a, b);
    case Pairwise::minimum:
      return std::min(a, b);
    case Pairwise::bit_and:
      return a & b;
    case Pairwise::bit_or:
      return a | b;
    case Pairwise::bit_xor:
      return a ^ b;
    case Pairwise::shift_left:
      return b < 0 || b > 63 ? 0 : wrapped(u << v);
    case Pairwise::shift_right:
      return a >> std::clamp<i64>(b < 0 ? 63 : b, 0, 63);
    case Pairwise::eq:
      return a == b;
    case Pairwise::ne:
      return a != b;
    case Pairwise::lt:
      return a < b;
    case Pairwise::le:
      return a <= b;
    case Pairwise::gt:
      return a > b;
    case Pairwise::ge:
      return a >= b;
  }
  return 0;
}

void check_bools(Pairwise op) {
  const bool refused = op == Pairwise::floor_div || op == Pairwise::remainder || op == Pairwise::shift_left || op == Pairwise::shift_right;
  if (refused) throw WrongValue("expected numbers, got two bool tensors: convert one of them, with x.long()");
}

template <class T>
T floored(T a, T b) {
  const T rest = std::fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (b == 0) return a / b;
  if (quotient == 0) return std::copysign(T(0), a / b);
  const T whole = std::floor(quotient);
  return quotient - whole > T(0.5) ? whole + 1 : whole;
}

template <class T>
T remaining(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

template <class F>
Tensor pairs_of_floats(const char* name, const Tensor& a, const Tensor& b, const F& f) {
  const Shape shape = ops::stretched_shape(name, {a, b});
  return on_host({a, b}, shape, a.dtype(), [&](const std::vector<Tensor>& in, const Tensor& out) {
    const Tensor left = stretched(in[0], shape), right = stretched(in[1], shape);
    kernels::for_dtype(name, a.dtype(), [&]<class T>(T) {
      const auto u = left.span<T>(), v = right.span<T>(), to = out.span<T>();
      for (size_t i = 0; i < to.size(); ++i) to[i] = narrow<T>(f(widen(u[i]), widen(v[i])));
    });
  });
}

}  // namespace

Tensor on_host(const std::vector<Tensor>& inputs, const Shape& shape, DType dtype,
               const std::function<void(const std::vector<Tensor>&, const Tensor&)>& compute) {
  const Stream& stream = Stream::current();
  if (stream.is_meta()) return empty(shape, dtype, "result");
  std::vector<Tensor> here;
  if (!stream.device.is_cuda()) {
    for (const Tensor& t : inputs) here.push_back(ops::dense(t));
    const Tensor out = empty(shape, dtype, "result");
    if (out.elems() > 0) compute(here, out);
    return out;
  }
  for (const Tensor& t : inputs) here.push_back(t.device().is_cuda() ? to_host(ops::dense(t)) : ops::dense(t));
  const Stream host{Device::cpu(), stream.threads, &MemoryPool::heap()};
  const Tensor out = [&] {
    const StreamScope scope(host);
    const Tensor made = empty(shape, dtype, "result");
    if (made.elems() > 0) compute(here, made);
    return made;
  }();
  return to_current_device(out, "result");
}

Tensor pairs_of_whole(Pairwise op, const Tensor& a, const Tensor& b, DType dtype) {
  if (dtype == DType::boolean) check_bools(op);
  const Shape shape = ops::stretched_shape("arithmetic", {a, b});
  return on_host({a, b}, shape, op >= Pairwise::eq ? DType::boolean : dtype, [&](const std::vector<Tensor>& in, const Tensor& out) {
    const Tensor left = stretched(as_i64(in[0]), shape), right = stretched(as_i64(in[1]), shape);
    const auto u = left.span<i64>(), v = right.span<i64>();
    const bool divides = op == Pairwise::floor_div || op == Pairwise::remainder;
    if (divides && std::ranges::find(v, 0) != v.end())
      throw WrongValue("expected numbers other than 0 to divide by, got a ZeroDivisionError");
    std::vector<i64> numbers(u.size());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = paired(op, u[i], v[i]);
    store(numbers, out);
  });
}

Tensor floor_of_quotient(const Tensor& a, const Tensor& b) {
  return pairs_of_floats("floor_divide", a, b, [](auto x, auto y) { return floored(x, y); });
}
Tensor remainder_of_quotient(const Tensor& a, const Tensor& b) {
  return pairs_of_floats("remainder", a, b, [](auto x, auto y) { return remaining(x, y); });
}

Tensor each_wide(const Tensor& x, const std::function<double(double)>& f) {
  return on_host({x}, x.shape(), x.dtype(), [&](const std::vector<Tensor>& in, const Tensor& out) {
    kernels::for_dtype("elementwise", x.dtype(), [&]<class T>(T) {
      const auto from = in[0].span<T>(), to = out.span<T>();
      for (size_t i = 0; i < to.size(); ++i) to[i] = narrow<T>(static_cast<Wide<T>>(f(static_cast<double>(widen(from[i])))));
    });
  });
}

Tensor each_whole(const Tensor& x, const std::function<i64(i64)>& f) {
  return on_host({x}, x.shape(), x.dtype(), [&](const std::vector<Tensor>& in, const Tensor& out) {
    const Tensor wide = as_i64(in[0]);
    std::vector<i64> numbers;
    for (const i64 one : wide.span<i64>()) numbers.push_back(f(one));
    store(numbers, out);
  });
}

Tensor fold_whole(Fold fold, const Tensor& x, const std::vector<int>& axes, bool keep) {
  const Shape shape = folded_shape(x.shape(), axes, keep);
  const bool best = fold == Fold::max || fold == Fold::min, place = fold == Fold::argmax || fold == Fold::argmin;
  if (x.elems() == 0 && shape.elems() > 0 && (best || place)) throw WrongIndex("expected elements to choose from, got an empty axis");
  const DType dtype = best ? x.dtype() : fold == Fold::any || fold == Fold::all ? DType::boolean : DType::int64;
  return on_host({x}, shape, dtype, [&](const std::vector<Tensor>& in, const Tensor& out) {
    const Tensor wide = as_i64(in[0]);
    const auto from = wide.span<i64>();
    const auto count = static_cast<size_t>(out.elems());
    const bool ones = fold == Fold::prod || fold == Fold::all, least = fold == Fold::max || fold == Fold::argmax;
    const i64 first = best || place ? (least ? std::numeric_limits<i64>::min() : std::numeric_limits<i64>::max()) : ones ? 1 : 0;
    std::vector<i64> found(count, first), places(place ? count : 0, 0), seen(places.size(), 0);
    walk(x.shape(), fold_steps(x.shape(), axes), [&](i64 i, i64 j) {
      i64& to = found[static_cast<size_t>(j)];
      const i64 one = from[static_cast<size_t>(i)];
      switch (fold) {
        case Fold::sum:
          to = wrapped(static_cast<u64>(to) + static_cast<u64>(one));
          break;
        case Fold::prod:
          to = wrapped(static_cast<u64>(to) * static_cast<u64>(one));
          break;
        case Fold::any:
          to = to != 0 || one != 0;
          break;
        case Fold::all:
          to = to != 0 && one != 0;
          break;
        case Fold::max:
          to = std::max(to, one);
          break;
        case Fold::min:
          to = std::min(to, one);
          break;
        default:
          if (fold == Fold::argmax ? one > to : one < to) to = one, places[static_cast<size_t>(j)] = seen[static_cast<size_t>(j)];
          ++seen[static_cast<size_t>(j)];
      }
    });
    store(place ? places : found, out);
  });
}

Tensor product_of(const Tensor& x, const std::vector<int>& axes, bool keep) {
  return on_host({x}, folded_shape(x.shape(), axes, keep), x.dtype(), [&](const std::vector<Tensor>& in, const Tensor& out) {
    std::vector<double> products(static_cast<size_t>(out.elems()), 1.0);
    kernels::for_dtype("prod", x.dtype(), [&]<class T>(T) {
      const auto from = in[0].span<T>(), to = out.span<T>();
      walk(x.shape(), fold_steps(x.shape(), axes),
           [&](i64 i, i64 j) { products[static_cast<size_t>(j)] *= static_cast<double>(widen(from[static_cast<size_t>(i)])); });
      for (size_t i = 0; i < to.size(); ++i) to[i] = narrow<T>(static_cast<Wide<T>>(products[i]));
    });
  });
}

Tensor running_sums_of_whole(const Tensor& x, int axis) {
  return on_host({x}, x.shape(), DType::int64, [&](const std::vector<Tensor>& in, const Tensor& out) {
    const Tensor wide = as_i64(in[0]);
    const auto from = wide.span<i64>(), to = out.span<i64>();
    i64 inner = 1;
    for (int i = axis + 1; i < x.rank(); ++i) inner *= x.size(i);
    for (size_t i = 0; i < to.size(); ++i) {
      const i64 before = static_cast<i64>(i) / inner % x.size(axis) == 0 ? 0 : to[i - static_cast<size_t>(inner)];
      to[i] = wrapped(static_cast<u64>(before) + static_cast<u64>(from[i]));
    }
  });
}

Tensor stretched(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  std::vector<i64> steps(static_cast<size_t>(shape.rank()), 0);
  i64 step = 1;
  bool fits = x.rank() <= shape.rank();
  for (int i = 1; fits && i <= x.rank(); ++i) {
    fits = x.size(-i) == 1 || x.size(-i) == shape[-i];
    if (x.size(-i) != 1) steps[steps.size() - static_cast<size_t>(i)] = step;
    step *= x.size(-i);
  }
  if (!fits)
    throw Error(ErrorCode::bug,
                "[expand] expected a tensor that broadcasts to " + to_string(shape) + ", got shape " + to_string(x.shape()));
  return on_host({x}, shape, x.dtype(), [&](const std::vector<Tensor>& in, const Tensor& out) {
    kernels::for_width(x.dtype(), [&]<class T>(T) {
      const auto* const from = reinterpret_cast<const T*>(in[0].raw());
      auto* const to = reinterpret_cast<T*>(out.raw());
      walk(shape, steps, [&](i64 i, i64 j) { to[i] = from[j]; });
    });
  });
}

Tensor rows_at(const Tensor& x, const std::vector<i64>& places) {
  Shape shape = x.shape();
  shape.set(0, std::ssize(places));
  return on_host({x}, shape, x.dtype(), [&](const std::vector<Tensor>& in, const Tensor& out) {
    const auto width = static_cast<size_t>(out.bytes()) / places.size();
    for (size_t i = 0; i < places.size(); ++i)
      std::memcpy(out.raw() + i * width, in[0].raw() + static_cast<size_t>(places[i]) * width, width);
  });
}

Tensor with_rows(const Tensor& x, const std::vector<i64>& places, const Tensor& rows) {
  return on_host({x, rows}, x.shape(), x.dtype(), [&](const std::vector<Tensor>& in, const Tensor& out) {
    std::memcpy(out.raw(), in[0].raw(), static_cast<size_t>(out.bytes()));
    if (places.empty()) return;
    const auto width = static_cast<size_t>(rows.bytes()) / places.size();
    for (size_t i = 0; i < places.size(); ++i)
      std::memcpy(out.raw() + static_cast<size_t>(places[i]) * width, in[1].raw() + i * width, width);
  });
}

}  // namespace spillway::python
