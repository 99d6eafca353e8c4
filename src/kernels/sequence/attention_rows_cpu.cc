#include "kernels/sequence/attention_rows.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sequence/attention_rows_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <cmath>

#include "kernels/vector_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

// Returns exp(scale * (x - top)).
template <class T>
struct Weight {
  T scale, top;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return exp(d, hn::Mul(hn::Set(d, scale), hn::Sub(x, hn::Set(d, top))));
  }
};
template <class T>
struct Times {
  T factor;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::Mul(x, hn::Set(d, factor));
  }
};
struct Plain {
  template <class D, class V>
  HWY_INLINE V operator()(D, V x) const {
    return x;
  }
};
// Returns exp(scale * x - lse).
template <class T>
struct Probability {
  T scale, lse;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return exp(d, hn::Sub(hn::Mul(hn::Set(d, scale), x), hn::Set(d, lse)));
  }
};
template <class T>
struct SoftmaxGradient {
  T delta, scale;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V p, V dx) const {
    return hn::Mul(hn::Mul(p, hn::Sub(dx, hn::Set(d, delta))), hn::Set(d, scale));
  }
};

template <class T>
struct Cap {
  T scale, cap;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::Mul(hn::Set(d, cap), tanh(d, hn::Mul(x, hn::Set(d, scale / cap))));
  }
};
template <class T>
struct CapGradient {
  T cap;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V dx) const {
    const V y = hn::Div(x, hn::Set(d, cap));
    return hn::Mul(dx, hn::NegMulAdd(y, y, hn::Set(d, 1)));
  }
};

template <class T>
HWY_ATTR T softmax(T* x, i64 n, T scale) {
  const T top = max_row(x, n);
  map(x, x, n, Weight<T>{scale, top});
  const T sum = sum_row(x, n, T(0), Plain());
  map(x, x, n, Times<T>{T(1) / sum});
  return scale * top + std::log(sum);
}

template <class T>
HWY_ATTR void probabilities(T* x, i64 n, T scale, T lse) {
  map(x, x, n, Probability<T>{scale, lse});
}

template <class T>
HWY_ATTR void softmax_gradient(const T* p, T* dx, i64 n, T delta, T scale) {
  map(p, static_cast<const T*>(dx), dx, n, SoftmaxGradient<T>{delta, scale});
}

template <class S>
HWY_ATTR Wide<S> dot(const S* x, const S* y, i64 n) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  auto sum = hn::Zero(d);
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::MulAdd(load(d, x + i), load(d, y + i), sum);
  if (i < n) sum = hn::MulAdd(load_rest(d, x + i, n - i, T(0)), load_rest(d, y + i, n - i, T(0)), sum);
  return fold_sum<T>(sum);
}

void cap_f32(float* x, i64 n, float scale, float cap) { map(x, x, n, Cap<float>{scale, cap}); }
void cap_f64(double* x, i64 n, double scale, double cap) { map(x, x, n, Cap<double>{scale, cap}); }
void cap_gradient_f32(const float* x, float* dx, i64 n, float cap) {
  map(x, static_cast<const float*>(dx), dx, n, CapGradient<float>{cap});
}
void cap_gradient_f64(const double* x, double* dx, i64 n, double cap) {
  map(x, static_cast<const double*>(dx), dx, n, CapGradient<double>{cap});
}
float softmax_f32(float* x, i64 n, float scale) { return softmax(x, n, scale); }
double softmax_f64(double* x, i64 n, double scale) { return softmax(x, n, scale); }
void probabilities_f32(float* x, i64 n, float scale, float lse) { probabilities(x, n, scale, lse); }
void probabilities_f64(double* x, i64 n, double scale, double lse) { probabilities(x, n, scale, lse); }
void gradient_f32(const float* p, float* dx, i64 n, float delta, float scale) { softmax_gradient(p, dx, n, delta, scale); }
void gradient_f64(const double* p, double* dx, i64 n, double delta, double scale) { softmax_gradient(p, dx, n, delta, scale); }
SPILLWAY_FOR_TYPES(dot, dot);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {
HWY_EXPORT(cap_f32);
HWY_EXPORT(cap_f64);
HWY_EXPORT(cap_gradient_f32);
HWY_EXPORT(cap_gradient_f64);
HWY_EXPORT(softmax_f32);
HWY_EXPORT(softmax_f64);
HWY_EXPORT(probabilities_f32);
HWY_EXPORT(probabilities_f64);
HWY_EXPORT(gradient_f32);
HWY_EXPORT(gradient_f64);
SPILLWAY_EXPORT_TYPES(dot);
}  // namespace

namespace rows {

template <>
void cap<float>(float* x, i64 n, float scale, float cap) {
  HWY_DYNAMIC_DISPATCH(cap_f32)(x, n, scale, cap);
}
template <>
void cap<double>(double* x, i64 n, double scale, double cap) {
  HWY_DYNAMIC_DISPATCH(cap_f64)(x, n, scale, cap);
}
template <>
void cap_gradient<float>(const float* x, float* dx, i64 n, float cap) {
  HWY_DYNAMIC_DISPATCH(cap_gradient_f32)(x, dx, n, cap);
}
template <>
void cap_gradient<double>(const double* x, double* dx, i64 n, double cap) {
  HWY_DYNAMIC_DISPATCH(cap_gradient_f64)(x, dx, n, cap);
}
template <>
float softmax<float>(float* x, i64 n, float scale) {
  return HWY_DYNAMIC_DISPATCH(softmax_f32)(x, n, scale);
}
template <>
double softmax<double>(double* x, i64 n, double scale) {
  return HWY_DYNAMIC_DISPATCH(softmax_f64)(x, n, scale);
}
template <>
void probabilities<float>(float* x, i64 n, float scale, float lse) {
  HWY_DYNAMIC_DISPATCH(probabilities_f32)(x, n, scale, lse);
}
template <>
void probabilities<double>(double* x, i64 n, double scale, double lse) {
  HWY_DYNAMIC_DISPATCH(probabilities_f64)(x, n, scale, lse);
}
template <>
void softmax_gradient<float>(const float* p, float* dx, i64 n, float delta, float scale) {
  HWY_DYNAMIC_DISPATCH(gradient_f32)(p, dx, n, delta, scale);
}
template <>
void softmax_gradient<double>(const double* p, double* dx, i64 n, double delta, double scale) {
  HWY_DYNAMIC_DISPATCH(gradient_f64)(p, dx, n, delta, scale);
}
template <class S>
Wide<S> dot(const S* x, const S* y, i64 n) {
  return SPILLWAY_DISPATCH_TYPE(S, dot, x, y, n);
}
template float dot(const float*, const float*, i64);
template double dot(const double*, const double*, i64);
template float dot(const BFloat16*, const BFloat16*, i64);
template float dot(const Float16*, const Float16*, i64);

}  // namespace rows
}  // namespace spillway::kernels
#endif
