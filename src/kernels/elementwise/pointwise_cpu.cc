#include "kernels/elementwise/pointwise.h"

#include <array>

#include "kernels/dispatch.h"
#include "kernels/elementwise/formulas.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

constexpr i64 kGrain = 1 << 14;

// An operand: its first element, and the distance between its elements
// along each axis. Axes that the operand's view lacks are added in front.
template <class T>
struct Operand {
  const T* at;
  std::array<i64, Shape::kMaxRank> stride{};
};

std::array<i64, Shape::kMaxRank> padded(const Shape& shape, i64 with) {
  std::array<i64, Shape::kMaxRank> all;
  all.fill(with);
  for (int i = 0; i < shape.rank(); ++i) all[static_cast<size_t>(Shape::kMaxRank - shape.rank() + i)] = shape[i];
  return all;
}

template <class T>
Operand<T> operand(const Tensor& view, const Shape& wanted) {
  return {reinterpret_cast<const T*>(view.raw()), padded(stretched_strides(view, wanted), 0)};
}

// Computes out[i] = f(operands[i]...) for each element. If all operands have the memory layout of `out`, one loop covers all elements;
// otherwise there is one loop for each row of the last axis.
template <class To, class F, class... From>
void map_views(const Tensor& out, F f, const Operand<From>&... from) {
  To* to = out.data<To>();
  const Stream& stream = Stream::current();
  [[maybe_unused]] const auto extent = padded(out.shape(), 1), contiguous = padded(stretched_strides(out, out.shape()), 0);
  if (((from.stride == contiguous) && ...)) {
    return stream.for_ranges(out.elems(), kGrain, [=](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) to[i] = narrow<To>(f(widen(from.at[i])...));
    });
  }
  const i64 columns = extent.back();
  const bool dense = ((from.stride.back() == 1) && ...);
  stream.for_ranges(out.elems() / columns, std::max<i64>(1, kGrain / columns), [=](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      [[maybe_unused]] const auto first = [&](const auto& view) {
        i64 rest = row, at = 0;
        for (size_t axis = Shape::kMaxRank - 1; axis-- > 0; rest /= extent[axis]) at += rest % extent[axis] * view.stride[axis];
        return view.at + at;
      };
      const auto one_row = [&](const auto*... at) {
        To* const z = to + row * columns;
        if (dense) {
          for (i64 i = 0; i < columns; ++i) z[i] = narrow<To>(f(widen(at[i])...));
        } else {
          for (i64 i = 0; i < columns; ++i) z[i] = narrow<To>(f(widen(at[i * from.stride.back()])...));
        }
      };
      one_row(first(from)...);
    }
  });
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
      const auto at = [&](int i) { return operand<T>(operands.begin()[i], out.shape()); };
      if constexpr (operands_of(kOp) == 0) return map_views<T>(out, f);
      if constexpr (operands_of(kOp) == 1) return map_views<T>(out, f, at(0));
      if constexpr (operands_of(kOp) == 2) return map_views<T>(out, f, at(0), at(1));
      if constexpr (operands_of(kOp) == 3) return map_views<T>(out, f, at(0), at(1), at(2));
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
      const Operand<T> left = operand<T>(a, out.shape());
      b.defined() ? map_views<u8>(out, f, left, operand<T>(b, out.shape())) : map_views<u8>(out, f, left);
    });
  });
}

void where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& out) {
  check("where", out.dtype(), {a, b}, out);
  check_mask(mask, out);
  if (is_void(out)) return;
  SPILLWAY_RETURN_IF_CUDA(out, where(mask, a, b, out));
  for_dtype("where", out.dtype(), [&]<class T>(T) {
    const Shape& shape = out.shape();
    map_views<T>(out, Choice(), operand<u8>(mask, shape), operand<T>(a, shape), operand<T>(b, shape));
  });
}

void fill_where(const Tensor& mask, bool set, double value, const Tensor& x, const Tensor& out) {
  check("fill_where", out.dtype(), {x}, out);
  check_mask(mask, out);
  if (is_void(out)) return;
  SPILLWAY_RETURN_IF_CUDA(out, fill_where(mask, set, value, x, out));
  for_dtype("fill_where", out.dtype(), [&]<class T>(T) {
    map_views<T>(out, FillWhere<Wide<T>>{set, static_cast<Wide<T>>(value)}, operand<u8>(mask, out.shape()), operand<T>(x, out.shape()));
  });
}

}  // namespace spillway::kernels
