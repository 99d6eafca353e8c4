#include "kernels/sequence/delta_rows.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sequence/delta_rows_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include "kernels/vector_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::delta {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::exp, kernels::HWY_NAMESPACE::fold_sum, kernels::HWY_NAMESPACE::lanes_of, kernels::HWY_NAMESPACE::load,
    kernels::HWY_NAMESPACE::load_rest, kernels::HWY_NAMESPACE::store, kernels::HWY_NAMESPACE::store_rest;

// Calls f(i, count) for each vector of n elements, where `count` is the number of its elements that exist.
template <class T, class F>
HWY_INLINE void each_vector(i64 n, F f) {
  constexpr i64 lanes = lanes_of<T>();
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) f(i, lanes);
  if (i < n) f(i, n - i);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> get(D d, const T* from, i64 n) {
  return n == lanes_of<T>() ? load(d, from) : load_rest(d, from, n, 0);
}
template <class D, class T>
HWY_INLINE void put(D d, hn::Vec<D> v, T* to, i64 n) {
  n == lanes_of<T>() ? store(d, v, to) : store_rest(d, v, to, n);
}

template <class T>
HWY_ATTR void weights(const T* qk, const T* kk, const T* decay, i64 n, T top, T beta, T* to_output, T* to_value) {
  const hn::ScalableTag<T> d;
  each_vector<T>(n, [&](i64 j, i64 count) HWY_ATTR {
    const auto e = exp(d, hn::Sub(hn::Set(d, top), get(d, decay + j, count)));
    put(d, hn::Mul(get(d, qk + j, count), e), to_output + j, count);
    put(d, hn::Mul(hn::Mul(hn::Set(d, beta), get(d, kk + j, count)), e), to_value + j, count);
  });
}

template <class T>
HWY_ATTR T weights_gradient(const T* qk, const T* kk, const T* doutput, const T* dvalue, const T* decay, i64 n, T top, T beta, T* dqk,
                            T* dkk, T* dexponents) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  each_vector<T>(n, [&](i64 j, i64 count) HWY_ATTR {
    const auto e = exp(d, hn::Sub(hn::Set(d, top), get(d, decay + j, count)));
    const auto of_output = hn::Mul(get(d, doutput + j, count), e), of_value = hn::Mul(get(d, dvalue + j, count), e);
    const auto scores = get(d, kk + j, count), scaled = hn::Mul(of_value, hn::Set(d, beta));
    put(d, hn::Add(get(d, dqk + j, count), of_output), dqk + j, count);
    put(d, hn::Add(get(d, dkk + j, count), scaled), dkk + j, count);
    const auto slope = hn::MulAdd(of_output, get(d, qk + j, count), hn::Mul(scaled, scores));
    put(d, hn::Add(get(d, dexponents + j, count), slope), dexponents + j, count);
    sum = hn::MulAdd(of_value, scores, sum);  // elements beyond the end are loaded as zeros
  });
  return fold_sum<T>(sum);
}

// Row i of the inverse is row i of I less the sum of a[i, j] times row j of the inverse, over j < i. Four vectors are summed at once.
template <class T>
HWY_ATTR void inverse_of_unit_lower(const T* a, i64 n, T* inverse) {
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  for (i64 i = 0; i < n; ++i) {
    T* row = inverse + i * n;
    i64 c = 0;
    for (; c + 4 * lanes <= i; c += 4 * lanes) {
      auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
      for (i64 j = c; j < i; ++j) {
        const T* other = inverse + j * n + c;
        const auto factor = hn::Set(d, a[i * n + j]);
        s0 = hn::NegMulAdd(factor, load(d, other), s0), s1 = hn::NegMulAdd(factor, load(d, other + lanes), s1);
        s2 = hn::NegMulAdd(factor, load(d, other + 2 * lanes), s2), s3 = hn::NegMulAdd(factor, load(d, other + 3 * lanes), s3);
      }
      store(d, s0, row + c), store(d, s1, row + c + lanes), store(d, s2, row + c + 2 * lanes), store(d, s3, row + c + 3 * lanes);
    }
    for (; c < i; c += lanes) {
      const i64 count = i - c < lanes ? i - c : lanes;
      auto s = hn::Zero(d);
      for (i64 j = c; j < i; ++j) s = hn::NegMulAdd(hn::Set(d, a[i * n + j]), get(d, inverse + j * n + c, count), s);
      put(d, s, row + c, count);
    }
    row[i] = T(1);
    for (i64 j = i + 1; j < n; ++j) row[j] = T(0);
  }
}

constexpr auto& weights_f32 = weights<float>;
constexpr auto& weights_f64 = weights<double>;
constexpr auto& gradient_f32 = weights_gradient<float>;
constexpr auto& gradient_f64 = weights_gradient<double>;
constexpr auto& inverse_f32 = inverse_of_unit_lower<float>;
constexpr auto& inverse_f64 = inverse_of_unit_lower<double>;

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::delta
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels::delta {
HWY_EXPORT(weights_f32);
HWY_EXPORT(weights_f64);
HWY_EXPORT(gradient_f32);
HWY_EXPORT(gradient_f64);
HWY_EXPORT(inverse_f32);
HWY_EXPORT(inverse_f64);

template <>
void weights(const float* qk, const float* kk, const float* decay, i64 n, float top, float beta, float* to_output, float* to_value) {
  HWY_DYNAMIC_DISPATCH(weights_f32)(qk, kk, decay, n, top, beta, to_output, to_value);
}
template <>
void weights(const double* qk, const double* kk, const double* decay, i64 n, double top, double beta, double* to_output, double* to_value) {
  HWY_DYNAMIC_DISPATCH(weights_f64)(qk, kk, decay, n, top, beta, to_output, to_value);
}
template <>
float weights_gradient(const float* qk, const float* kk, const float* doutput, const float* dvalue, const float* decay, i64 n, float top,
                       float beta, float* dqk, float* dkk, float* dexponents) {
  return HWY_DYNAMIC_DISPATCH(gradient_f32)(qk, kk, doutput, dvalue, decay, n, top, beta, dqk, dkk, dexponents);
}
template <>
double weights_gradient(const double* qk, const double* kk, const double* doutput, const double* dvalue, const double* decay, i64 n,
                        double top, double beta, double* dqk, double* dkk, double* dexponents) {
  return HWY_DYNAMIC_DISPATCH(gradient_f64)(qk, kk, doutput, dvalue, decay, n, top, beta, dqk, dkk, dexponents);
}
template <>
void inverse_of_unit_lower(const float* a, i64 n, float* inverse) {
  HWY_DYNAMIC_DISPATCH(inverse_f32)(a, n, inverse);
}
template <>
void inverse_of_unit_lower(const double* a, i64 n, double* inverse) {
  HWY_DYNAMIC_DISPATCH(inverse_f64)(a, n, inverse);
}

}  // namespace spillway::kernels::delta
#endif
