#include "kernels/elementwise/pointwise.h"

#include "kernels/dispatch.h"
#include "kernels/elementwise/formulas.h"
#include "kernels/views_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// Computes out = f(views...) for each element. View i has elements of the i-th type of From, or of a type as wide.
template <class To, class... From, class F, class... Views>
void map(const char* name, const Tensor& out, F f, const Views&... views) {
  const Shape& shape = out.shape();
  const auto axes = merged_axes(shape, {strides_of(out), stretched_strides(views, shape)...});
  map_views_on_gpu(name, axes, f, reinterpret_cast<To*>(out.raw()), reinterpret_cast<const From*>(views.raw())...);
}

// A functor for all other formulas of kOperands operands; it chooses the formula at run time. One kernel for each formula would mean
// hundreds of kernels, which would make up most of the program's size. Long formulas (is_long()) have a separate kernel, which computes one
// element at a time.
template <int kOperands, bool kLong, class W>
struct AnyFormula : OneAtATime<kLong> {
  Pointwise op;
  W p, q;

  template <class... Operands>
  __device__ W operator()(Operands... operands) const {
    W result = 0;
    for_enum<kPointwiseCount>(op, [&]<Pointwise kOp>(std::integral_constant<Pointwise, kOp>) {
      if constexpr (operands_of(kOp) == kOperands && is_long(kOp) == kLong && !is_arithmetic(kOp))
        result = Formula<kOp, W>{p, q}(operands...);
    });
    return result;
  }
};

template <class W>
struct AnyComparison {
  Compare op;
  W number;

  __device__ u8 operator()(W a, W b) const {
    u8 result = 0;
    for_enum<6>(op, [&]<Compare kOp>(std::integral_constant<Compare, kOp>) { result = holds<kOp>(a, b); });
    return result;
  }
  __device__ u8 operator()(W a) const { return (*this)(a, number); }
};

template <bool kLong, class T>
void map_formula(Pointwise op, const Tensor* in, Numbers numbers, const Tensor& out) {
  using W = Wide<T>;
  const auto p = static_cast<W>(numbers.p), q = static_cast<W>(numbers.q);
  const int operands = operands_of(op);
  if constexpr (!kLong) {
    if (operands == 0) return map<T>("pointwise", out, AnyFormula<0, kLong, W>{{}, op, p, q});
  }
  if (operands == 1) return map<T, T>("pointwise", out, AnyFormula<1, kLong, W>{{}, op, p, q}, in[0]);
  if (operands == 2) return map<T, T, T>("pointwise", out, AnyFormula<2, kLong, W>{{}, op, p, q}, in[0], in[1]);
  map<T, T, T, T>("pointwise", out, AnyFormula<3, kLong, W>{{}, op, p, q}, in[0], in[1], in[2]);
}

// Each arithmetic op has a separate kernel.
template <class T>
void map_arithmetic(Pointwise op, const Tensor* in, const Tensor& out) {
  for_enum<kPointwiseCount>(op, [&]<Pointwise kOp>(std::integral_constant<Pointwise, kOp>) {
    if constexpr (is_arithmetic(kOp) && operands_of(kOp) == 1) map<T, T>("pointwise", out, Formula<kOp, Wide<T>>{}, in[0]);
    if constexpr (is_arithmetic(kOp) && operands_of(kOp) == 2) map<T, T, T>("pointwise", out, Formula<kOp, Wide<T>>{}, in[0], in[1]);
  });
}

}  // namespace

void pointwise(Pointwise op, std::initializer_list<Tensor> operands, Numbers numbers, const Tensor& out) {
  for_dtype("pointwise", out.dtype(), [&]<class T>(T) {
    if (is_arithmetic(op)) return map_arithmetic<T>(op, operands.begin(), out);
    is_long(op) ? map_formula<true, T>(op, operands.begin(), numbers, out) : map_formula<false, T>(op, operands.begin(), numbers, out);
  });
}

void compare(Compare op, const Tensor& a, const Tensor& b, double number, const Tensor& out) {
  for_dtype("compare", a.dtype(), [&]<class T>(T) {
    const AnyComparison<Wide<T>> f{op, static_cast<Wide<T>>(number)};
    b.defined() ? map<u8, T, T>("compare", out, f, a, b) : map<u8, T>("compare", out, f, a);
  });
}

// A choice moves elements as they are: a conversion would change the bits of NaN.
void where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& out) {
  for_dtype("where", out.dtype(), [&]<class T>(T) {
    using Bits = Word<sizeof(T)>;
    map<Bits, u8, Bits, Bits>("where", out, Choice(), mask, a, b);
  });
}

void fill_where(const Tensor& mask, bool set, double value, const Tensor& x, const Tensor& out) {
  for_dtype("fill_where", out.dtype(), [&]<class T>(T) {
    using Bits = Word<sizeof(T)>;
    const auto filled = std::bit_cast<Bits>(narrow<T>(static_cast<Wide<T>>(value)));
    map<Bits, u8, Bits>("fill_where", out, FillWhere<Bits>{set, filled}, mask, x);
  });
}

}  // namespace spillway::kernels::cuda
