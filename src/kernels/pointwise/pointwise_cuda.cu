#include "kernels/pointwise/pointwise.h"

#include "kernels/dispatch.h"
#include "kernels/pointwise/formulas.h"
#include "kernels/views_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// out = f(views...), each view's elements as From.
template <class To, class... From, class F, class... Views>
void map(const char* name, const Tensor& out, F f, const Views&... views) {
  const Shape& shape = out.shape();
  const auto axes = merged_axes(shape, {strides_of(out), stretched_strides(views, shape)...});
  map_views_on_gpu(name, axes, f, out.data<To>(), reinterpret_cast<const From*>(views.raw())...);
}

}  // namespace

void pointwise(Pointwise op, std::initializer_list<Tensor> operands, Numbers numbers, const Tensor& out) {
  for_dtype("pointwise", out.dtype(), [&]<class T>(T) {
    for_enum<kPointwiseCount>(op, [&]<Pointwise kOp>(std::integral_constant<Pointwise, kOp>) {
      using W = Wide<T>;
      const Formula<kOp, W> f{static_cast<W>(numbers.p), static_cast<W>(numbers.q)};
      const Tensor* in = operands.begin();
      if constexpr (operands_of(kOp) == 0) return map<T>("pointwise", out, f);
      if constexpr (operands_of(kOp) == 1) return map<T, T>("pointwise", out, f, in[0]);
      if constexpr (operands_of(kOp) == 2) return map<T, T, T>("pointwise", out, f, in[0], in[1]);
      if constexpr (operands_of(kOp) == 3) return map<T, T, T, T>("pointwise", out, f, in[0], in[1], in[2]);
    });
  });
}

void compare(Compare op, const Tensor& a, const Tensor& b, double number, const Tensor& out) {
  for_dtype("compare", a.dtype(), [&]<class T>(T) {
    for_enum<6>(op, [&]<Compare kOp>(std::integral_constant<Compare, kOp>) {
      const Comparison<kOp, Wide<T>> f{static_cast<Wide<T>>(number)};
      b.defined() ? map<u8, T, T>("compare", out, f, a, b) : map<u8, T>("compare", out, f, a);
    });
  });
}

void where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& out) {
  for_dtype("where", out.dtype(), [&]<class T>(T) { map<T, u8, T, T>("where", out, Choice(), mask, a, b); });
}

void fill_where(const Tensor& mask, bool set, double value, const Tensor& x, const Tensor& out) {
  for_dtype("fill_where", out.dtype(), [&]<class T>(T) {
    map<T, u8, T>("fill_where", out, FillWhere<Wide<T>>{set, static_cast<Wide<T>>(value)}, mask, x);
  });
}

}  // namespace spillway::kernels::cuda
