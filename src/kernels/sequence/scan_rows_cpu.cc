#include "kernels/sequence/scan_rows.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sequence/scan_rows_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include "kernels/vector_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::scan {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::exp, kernels::HWY_NAMESPACE::Itself, kernels::HWY_NAMESPACE::lanes_of, kernels::HWY_NAMESPACE::load,
    kernels::HWY_NAMESPACE::load_rest, kernels::HWY_NAMESPACE::store, kernels::HWY_NAMESPACE::store_rest, kernels::HWY_NAMESPACE::sum_row;

// Calls f(d, i, n) for each vector of n elements, where n is the number of its elements that exist: less than a vector at the end of a row.
template <class T, class F>
HWY_INLINE void each_vector(i64 n, F f) {
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) f(d, i, lanes);
  if (i < n) f(d, i, n - i);
}
template <class D, class S>
HWY_INLINE hn::Vec<D> get(D d, const S* from, i64 n) {
  return n == lanes_of<S>() ? load(d, from) : load_rest(d, from, n, 0);
}
template <class D, class S>
HWY_INLINE void put(D d, hn::Vec<D> v, S* to, i64 n) {
  n == lanes_of<S>() ? store(d, v, to) : store_rest(d, v, to, n);
}

template <class T>
HWY_ATTR void decayed(const T* scores, const T* decay, const T* factor, i64 n, T top, T* to) {
  each_vector<T>(n, [&](auto d, i64 i, i64 count) HWY_ATTR {
    const auto e = exp(d, hn::Sub(hn::Set(d, top), get(d, decay + i, count)));
    put(d, hn::Mul(hn::Mul(get(d, scores + i, count), e), get(d, factor + i, count)), to + i, count);
  });
}

template <class T>
HWY_ATTR void decayed_gradient(const T* scores, const T* w, const T* decay, const T* factor, i64 n, T top, T* weights, T* dscores,
                               T* dexponents) {
  each_vector<T>(n, [&](auto d, i64 i, i64 count) HWY_ATTR {
    const auto e = exp(d, hn::Sub(hn::Set(d, top), get(d, decay + i, count)));
    const auto score = get(d, scores + i, count);
    const auto slope = hn::Mul(hn::Mul(get(d, w + i, count), e), get(d, factor + i, count));
    put(d, hn::Mul(score, e), weights + i, count);
    put(d, hn::Add(get(d, dscores + i, count), slope), dscores + i, count);
    put(d, hn::MulAdd(score, slope, get(d, dexponents + i, count)), dexponents + i, count);
  });
}

template <class S>
HWY_ATTR void times(const S* x, i64 n, Wide<S> factor, Wide<S>* y) {
  each_vector<Wide<S>>(n,
                       [&](auto d, i64 i, i64 count) HWY_ATTR { put(d, hn::Mul(get(d, x + i, count), hn::Set(d, factor)), y + i, count); });
}

template <class S, class Z>
HWY_ATTR void weighted_sum(const Wide<S>* x, Wide<S> a, const S* y, Wide<S> b, i64 n, Z* z) {
  each_vector<Wide<S>>(n, [&](auto d, i64 i, i64 count) HWY_ATTR {
    const auto other = hn::Mul(get(d, y + i, count), hn::Set(d, b));
    put(d, hn::MulAdd(get(d, x + i, count), hn::Set(d, a), other), z + i, count);
  });
}

template <class T>
HWY_ATTR T sum(const T* x, i64 n) {
  return sum_row(x, n, T(0), Itself<T>());
}

constexpr auto& decayed_f32 = decayed<float>;
constexpr auto& sum_of_f32 = sum<float>;
constexpr auto& decayed_f64 = decayed<double>;
constexpr auto& gradient_f32 = decayed_gradient<float>;
constexpr auto& gradient_f64 = decayed_gradient<double>;
constexpr auto& sum_of_f64 = sum<double>;
template <class S>
constexpr auto& weighted_sum_narrow = weighted_sum<S, S>;
template <class S>
constexpr auto& weighted_sum_wide = weighted_sum<S, Wide<S>>;
SPILLWAY_FOR_TYPES(times, times);
SPILLWAY_FOR_TYPES(narrow_sum, weighted_sum_narrow);
SPILLWAY_FOR_TYPES(wide_sum, weighted_sum_wide);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::scan
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels::scan {
HWY_EXPORT(decayed_f32);
HWY_EXPORT(decayed_f64);
HWY_EXPORT(gradient_f32);
HWY_EXPORT(gradient_f64);
HWY_EXPORT(sum_of_f32);
HWY_EXPORT(sum_of_f64);
SPILLWAY_EXPORT_TYPES(times);
SPILLWAY_EXPORT_TYPES(narrow_sum);
SPILLWAY_EXPORT_TYPES(wide_sum);

template <>
void decayed(const float* scores, const float* decay, const float* factor, i64 n, float top, float* to) {
  HWY_DYNAMIC_DISPATCH(decayed_f32)(scores, decay, factor, n, top, to);
}
template <>
void decayed(const double* scores, const double* decay, const double* factor, i64 n, double top, double* to) {
  HWY_DYNAMIC_DISPATCH(decayed_f64)(scores, decay, factor, n, top, to);
}
template <>
void decayed_gradient(const float* scores, const float* w, const float* decay, const float* factor, i64 n, float top, float* weights,
                      float* dscores, float* dexponents) {
  HWY_DYNAMIC_DISPATCH(gradient_f32)(scores, w, decay, factor, n, top, weights, dscores, dexponents);
}
template <>
void decayed_gradient(const double* scores, const double* w, const double* decay, const double* factor, i64 n, double top, double* weights,
                      double* dscores, double* dexponents) {
  HWY_DYNAMIC_DISPATCH(gradient_f64)(scores, w, decay, factor, n, top, weights, dscores, dexponents);
}
template <>
float sum(const float* x, i64 n) {
  return HWY_DYNAMIC_DISPATCH(sum_of_f32)(x, n);
}
template <>
double sum(const double* x, i64 n) {
  return HWY_DYNAMIC_DISPATCH(sum_of_f64)(x, n);
}
template <class S>
void times(const S* x, i64 n, Wide<S> factor, Wide<S>* y) {
  SPILLWAY_DISPATCH_TYPE(S, times, x, n, factor, y);
}
template <class S, class Z>
void weighted_sum(const Wide<S>* x, Wide<S> a, const S* y, Wide<S> b, i64 n, Z* z) {
  if constexpr (std::is_same_v<S, Z>) {
    SPILLWAY_DISPATCH_TYPE(S, narrow_sum, x, a, y, b, n, z);
  } else {
    SPILLWAY_DISPATCH_TYPE(S, wide_sum, x, a, y, b, n, z);
  }
}
template void times(const float*, i64, float, float*);
template void times(const double*, i64, double, double*);
template void times(const BFloat16*, i64, float, float*);
template void times(const Float16*, i64, float, float*);
template void weighted_sum(const float*, float, const float*, float, i64, float*);
template void weighted_sum(const double*, double, const double*, double, i64, double*);
template void weighted_sum(const float*, float, const BFloat16*, float, i64, float*);
template void weighted_sum(const float*, float, const Float16*, float, i64, float*);
template void weighted_sum(const float*, float, const BFloat16*, float, i64, BFloat16*);
template void weighted_sum(const float*, float, const Float16*, float, i64, Float16*);

}  // namespace spillway::kernels::scan
#endif
