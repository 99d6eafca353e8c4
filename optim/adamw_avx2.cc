// See adamw_paths.h for what holds these operations to the scalar loop's bits.
#if defined(__x86_64__)
#include <immintrin.h>

#include "optim/adamw_paths.h"

#define SPILLWAY_AVX2 __attribute__((target("avx2")))

namespace spillway::optim {
namespace {

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
  using V = __m256;
  static constexpr i64 kWidth = 8;
  SPILLWAY_AVX2 static V load(const float* at) { return _mm256_loadu_ps(at); }
  SPILLWAY_AVX2 static void store(float* at, V x) { _mm256_storeu_ps(at, x); }
  SPILLWAY_AVX2 static V splat(float x) { return _mm256_set1_ps(x); }
  SPILLWAY_AVX2 static V add(V a, V b) { return _mm256_add_ps(a, b); }
  SPILLWAY_AVX2 static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  SPILLWAY_AVX2 static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  SPILLWAY_AVX2 static V div(V a, V b) { return _mm256_div_ps(a, b); }
  SPILLWAY_AVX2 static V sqrt(V x) { return _mm256_sqrt_ps(x); }
};

template <>
struct Lanes<double> {
  using V = __m256d;
  static constexpr i64 kWidth = 4;
  SPILLWAY_AVX2 static V load(const double* at) { return _mm256_loadu_pd(at); }
  SPILLWAY_AVX2 static void store(double* at, V x) { _mm256_storeu_pd(at, x); }
  SPILLWAY_AVX2 static V splat(double x) { return _mm256_set1_pd(x); }
  SPILLWAY_AVX2 static V add(V a, V b) { return _mm256_add_pd(a, b); }
  SPILLWAY_AVX2 static V sub(V a, V b) { return _mm256_sub_pd(a, b); }
  SPILLWAY_AVX2 static V mul(V a, V b) { return _mm256_mul_pd(a, b); }
  SPILLWAY_AVX2 static V div(V a, V b) { return _mm256_div_pd(a, b); }
  SPILLWAY_AVX2 static V sqrt(V x) { return _mm256_sqrt_pd(x); }
};

template <class T>
SPILLWAY_AVX2 i64 update(T* weight, T* m, T* v, const T* gradient, i64 n, const AdamWScalars<T>& s) {
  using L = Lanes<T>;
  const auto scale = L::splat(s.gradient_scale), decay = L::splat(s.decay), one_minus_beta1 = L::splat(s.one_minus_beta1);
  const auto beta2 = L::splat(s.beta2), one_minus_beta2 = L::splat(s.one_minus_beta2);
  const auto root_correction2 = L::splat(s.root_correction2), eps = L::splat(s.eps), step_size = L::splat(s.step_size);
  i64 i = 0;
  for (; i + L::kWidth <= n; i += L::kWidth) {
    const auto g = L::mul(L::load(gradient + i), scale);
    const auto decayed = L::mul(L::load(weight + i), decay);
    const auto m_old = L::load(m + i);
    const auto m_new = L::add(m_old, L::mul(L::sub(g, m_old), one_minus_beta1));
    const auto v_new = L::add(L::mul(L::load(v + i), beta2), L::mul(one_minus_beta2, L::mul(g, g)));
    const auto root = L::add(L::div(L::sqrt(v_new), root_correction2), eps);
    L::store(m + i, m_new);
    L::store(v + i, v_new);
    L::store(weight + i, L::sub(decayed, L::mul(step_size, L::div(m_new, root))));
  }
  return i;
}

}  // namespace

template <class T>
i64 adamw_avx2(T* weight, T* m, T* v, const T* gradient, i64 n, const AdamWScalars<T>& s) {
  return update(weight, m, v, gradient, n, s);
}

template i64 adamw_avx2(float*, float*, float*, const float*, i64, const AdamWScalars<float>&);
template i64 adamw_avx2(double*, double*, double*, const double*, i64, const AdamWScalars<double>&);

}  // namespace spillway::optim
#endif
