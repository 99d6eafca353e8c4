#include "kernels/elementwise/pointwise.h"

#include <array>

#include "kernels/dispatch.h"
#include "kernels/elementwise/formulas.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

constexpr i64 kGrain = 1 << 14;

using Strides = std::array<i64, Shape::kMaxRank>;

// Returns the extents or strides of all axes. Axes that the shape lacks are added in front, each with the value `with`.
Strides padded(const Shape& shape, i64 with) {
  Strides all;
  all.fill(with);
  for (int i = 0; i < shape.rank(); ++i) all[static_cast<size_t>(Shape::kMaxRank - shape.rank() + i)] = shape[i];
  return all;
}

constexpr size_t kMostOperands = 3;

// The first elements of the operands in one row, and the distances in elements between neighbours.
struct Row {
  std::array<const std::byte*, kMostOperands> from{};
  std::array<i64, kMostOperands> step{};
};

// Computes n elements of a row from its operands with the functor at `formula`.
using RowLoop = void (*)(const void* formula, std::byte* to, const Row& row, i64 n);

template <class T>
struct Strided {
  const T* at;
  i64 step;
};

template <class F, class To, class... From>
void compute_dense(F f, i64 n, To* to, const From*... from) {
  for (i64 i = 0; i < n; ++i) to[i] = narrow<To>(f(widen(from[i])...));
}

template <class F, class To, class... From>
void compute_strided(F f, i64 n, To* to, Strided<From>... from) {
  for (i64 i = 0; i < n; ++i) to[i] = narrow<To>(f(widen(from.at[i * from.step])...));
}

template <class To, class F, class... From>
void compute_row(const void* formula, std::byte* to, const Row& row, i64 n) {
  const F f = *static_cast<const F*>(formula);
  To* const first = reinterpret_cast<To*>(to);
  [&]<size_t... k>(std::index_sequence<k...>) {
    if (((row.step[k] == 1) && ...)) {
      compute_dense(f, n, first, reinterpret_cast<const From*>(row.from[k])...);
    } else {
      compute_strided(f, n, first, Strided<From>{reinterpret_cast<const From*>(row.from[k]), row.step[k]}...);
    }
  }
  (std::index_sequence_for<From...>());
}

// Calls `loop` for all of `out`: for long runs if all views lie in memory as `out` does, else for one row of the last axis after the other.
// It is no template, so that each formula and dtype adds only its two loops to the program.
void for_rows(const Tensor& out, std::initializer_list<Tensor> views, RowLoop loop, const void* formula) {
  const Stream& stream = Stream::current();
  const Strides extent = padded(out.shape(), 1), contiguous = padded(stretched_strides(out, out.shape()), 0);
  Row first;
  std::array<Strides, kMostOperands> strides{};
  std::array<i64, kMostOperands> size{};
  const size_t count = views.size();
  bool one_run = true;
  for (size_t v = 0; v < count; ++v) {
    const Tensor& view = views.begin()[v];
    strides[v] = padded(stretched_strides(view, out.shape()), 0);
    size[v] = size_of(view.dtype());
    first.from[v] = static_cast<const std::byte*>(view.raw());
    one_run = one_run && strides[v] == contiguous;
  }
  std::byte* const to = static_cast<std::byte*>(out.raw());
  const i64 to_size = size_of(out.dtype());
  if (one_run) {
    first.step.fill(1);
    return stream.for_ranges(out.elems(), kGrain, [=](i64 begin, i64 end) {
      Row part = first;
      for (size_t v = 0; v < count; ++v) part.from[v] += begin * size[v];
      loop(formula, to + begin * to_size, part, end - begin);
    });
  }
  for (size_t v = 0; v < count; ++v) first.step[v] = strides[v].back();
  const i64 columns = extent.back();
  stream.for_ranges(out.elems() / columns, std::max<i64>(1, kGrain / columns), [=](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      Row part = first;
      for (size_t v = 0; v < count; ++v) {
        i64 rest = row, at = 0;
        for (size_t axis = Shape::kMaxRank - 1; axis-- > 0; rest /= extent[axis]) at += rest % extent[axis] * strides[v][axis];
        part.from[v] += at * size[v];
      }
      loop(formula, to + row * columns * to_size, part, columns);
    }
  });
}

// Computes out = f(views...) for each element. View i has elements of the i-th type of From.
template <class To, class... From, class F>
void map_views(const Tensor& out, const F& f, std::initializer_list<Tensor> views) {
  for_rows(out, views, compute_row<To, F, From...>, &f);
}

void check(const char* op, DType dtype, std::initializer_list<Tensor> operands, const Tensor& out) {
  require(out.is_contiguous(), "[pointwise] expected a contiguous result");
  for (const Tensor& view : operands) {
    if (view.dtype() != dtype) {
      throw Error(ErrorCode::bug, std::string("[") + op + "] expected operands of " + std::string(to_string(dtype)) + ", got " +
                                      std::string(to_string(view.dtype())));
    }
    static_cast<void>(stretched_strides(view, out.shape()));
  }
}

void check_mask(const Tensor& mask, const Tensor& out) {
  require(size_of(mask.dtype()) == 1, "[where] expected a mask of uint8 or bool");
  static_cast<void>(stretched_strides(mask, out.shape()));
}

// Returns whether there is nothing to compute: the result has no elements or lies on the meta device.
bool is_void(const Tensor& out) { return out.device().is_meta() || out.elems() == 0; }

}  // namespace

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape out = a.rank() >= b.rank() ? a : b;
  const int lower = std::min(a.rank(), b.rank());
  for (int i = 1; i <= lower; ++i) {
    if (a[-i] != b[-i] && a[-i] != 1 && b[-i] != 1) {
      throw Error(ErrorCode::bug, "[broadcast] the shapes " + to_string(a) + " and " + to_string(b) + " do not broadcast");
    }
    out.set(-i, a[-i] == 1 ? b[-i] : a[-i]);
  }
  return out;
}

Shape broadcast_strides(const Shape& shape, const Shape& wanted) {
  if (!(broadcast_shape(shape, wanted) == wanted)) {
    throw Error(ErrorCode::bug, "[broadcast] the shape " + to_string(shape) + " does not broadcast to " + to_string(wanted));
  }
  Shape strides = wanted;
  for (int i = 0; i < wanted.rank(); ++i) strides.set(i, 0);
  i64 step = 1;
  for (int i = 1; i <= shape.rank(); ++i) {
    if (shape[-i] != 1) strides.set(-i, step);
    step *= shape[-i];
  }
  return strides;
}

Shape stretched_strides(const Tensor& view, const Shape& wanted) {
  Shape strides = broadcast_strides(view.shape(), wanted);
  for (int i = 1; i <= view.rank(); ++i) strides.set(-i, view.size(-i) == 1 ? 0 : view.stride(-i));
  return strides;
}

void pointwise(Pointwise op, std::initializer_list<Tensor> operands, Numbers numbers, const Tensor& out) {
  require(static_cast<int>(operands.size()) == operands_of(op), "[pointwise] expected as many operands as the formula takes");
  check("pointwise", out.dtype(), operands, out);
  if (is_void(out)) return;
  SPILLWAY_RETURN_IF_CUDA(out, pointwise(op, operands, numbers, out));
  for_dtype("pointwise", out.dtype(), [&]<class T>(T) {
    for_enum<kPointwiseCount>(op, [&]<Pointwise kOp>(std::integral_constant<Pointwise, kOp>) {
      using W = Wide<T>;
      const Formula<kOp, W> f{static_cast<W>(numbers.p), static_cast<W>(numbers.q)};
      if constexpr (operands_of(kOp) == 0) return map_views<T>(out, f, operands);
      if constexpr (operands_of(kOp) == 1) return map_views<T, T>(out, f, operands);
      if constexpr (operands_of(kOp) == 2) return map_views<T, T, T>(out, f, operands);
      if constexpr (operands_of(kOp) == 3) return map_views<T, T, T, T>(out, f, operands);
    });
  });
}

void compare(Compare op, const Tensor& a, const Tensor& b, double number, const Tensor& out) {
  require(out.dtype() == DType::uint8, "[compare] expected a result in uint8");
  b.defined() ? check("compare", a.dtype(), {a, b}, out) : check("compare", a.dtype(), {a}, out);
  if (is_void(out)) return;
  SPILLWAY_RETURN_IF_CUDA(out, compare(op, a, b, number, out));
  for_dtype("compare", a.dtype(), [&]<class T>(T) {
    for_enum<6>(op, [&]<Compare kOp>(std::integral_constant<Compare, kOp>) {
      const Comparison<kOp, Wide<T>> f{static_cast<Wide<T>>(number)};
      b.defined() ? map_views<u8, T, T>(out, f, {a, b}) : map_views<u8, T>(out, f, {a});
    });
  });
}

void where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& out) {
  check("where", out.dtype(), {a, b}, out);
  check_mask(mask, out);
  if (is_void(out)) return;
  SPILLWAY_RETURN_IF_CUDA(out, where(mask, a, b, out));
  for_dtype("where", out.dtype(), [&]<class T>(T) { map_views<T, u8, T, T>(out, Choice(), {mask, a, b}); });
}

void fill_where(const Tensor& mask, bool set, double value, const Tensor& x, const Tensor& out) {
  check("fill_where", out.dtype(), {x}, out);
  check_mask(mask, out);
  if (is_void(out)) return;
  SPILLWAY_RETURN_IF_CUDA(out, fill_where(mask, set, value, x, out));
  for_dtype("fill_where", out.dtype(), [&]<class T>(T) {
    map_views<T, u8, T>(out, FillWhere<Wide<T>>{set, static_cast<Wide<T>>(value)}, {mask, x});
  });
}

}  // namespace spillway::kernels
