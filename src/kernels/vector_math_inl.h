// Vector functions that the Highway files share. This file is compiled once per instruction set (included
// after hwy/highway.h, never by a header). Every element is computed by one formula, whatever its position:
// the last elements of a row are padded to a whole vector instead of being computed differently. Sums over a
// row keep two vectors of partial sums and add them in a fixed order, which depends on the row's length alone.
#if defined(SPILLWAY_VECTOR_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_VECTOR_MATH_INL_H
#undef SPILLWAY_VECTOR_MATH_INL_H
#else
#define SPILLWAY_VECTOR_MATH_INL_H
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/storage_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Computes exp(x) as Highway's Exp does, but correctly also for NaN and outside the range that Highway documents.
template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  const V top = hn::Set(d, sizeof(hn::TFromD<D>) == 4 ? 104 : 710);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, hn::Min(top, x)));
}

template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
}

template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

/// Computes y[i] = f(x[i]) for all elements, a vector at a time; y may be x. f has the form V operator()(D, V).
template <class X, class Y, class F>
HWY_ATTR void map(const X* x, Y* y, i64 n, F f) {
  using T = Wide<X>;
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) store(d, f(d, load(d, x + i)), y + i);
  if (i < n) store_rest(d, f(d, load_rest(d, x + i, n - i, T(0))), y + i, n - i);
}

/// Computes z[i] = f(x[i], y[i]) for all elements, a vector at a time.
template <class S, class F>
HWY_ATTR void map(const S* x, const S* y, S* z, i64 n, F f) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) store(d, f(d, load(d, x + i), load(d, y + i)), z + i);
  if (i < n) store_rest(d, f(d, load_rest(d, x + i, n - i, T(0)), load_rest(d, y + i, n - i, T(0))), z + i, n - i);
}

/// Returns the sum of a vector's lanes. The lanes are added pairwise: lane i and lane i + half, until one is left.
template <class T, class V>
HWY_INLINE T fold_sum(V v) {
  const hn::ScalableTag<T> d;
  HWY_ALIGN T lanes[HWY_LANES(T)];
  hn::Store(v, d, lanes);
  for (i64 half = lanes_of<T>() / 2; half > 0; half /= 2) {
    for (i64 i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// The struct Itself and the struct after it give the terms that sum_row() adds: x itself, and (x - mean)^2.
template <class T>
struct Itself {
  template <class D, class V>
  HWY_INLINE V operator()(D, V x) const {
    return x;
  }
};
template <class T>
struct SquareAround {
  T mean;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V centred = hn::Sub(x, hn::Set(d, mean));
    return hn::Mul(centred, centred);
  }
};

/// Returns the sum of f(x[i]) over all i. The last vector is padded with `pad`, so f(pad) must be zero.
template <class S, class F>
HWY_INLINE Wide<S> sum_row(const S* x, i64 n, Wide<S> pad, F f) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  auto even = hn::Zero(d), odd = hn::Zero(d);
  i64 i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::Add(even, f(d, load(d, x + i)));
    odd = hn::Add(odd, f(d, load(d, x + i + lanes)));
  }
  if (i + lanes <= n) {
    even = hn::Add(even, f(d, load(d, x + i)));
    i += lanes;
  }
  if (i < n) odd = hn::Add(odd, f(d, load_rest(d, x + i, n - i, pad)));
  return fold_sum<T>(hn::Add(even, odd));
}

/// Returns the largest element of x. A NaN may be ignored. That is
/// harmless before a sum of exponentials, because that sum becomes NaN.
template <class S>
HWY_ATTR Wide<S> max_row(const S* x, i64 n) {
  const hn::ScalableTag<Wide<S>> d;
  constexpr i64 lanes = lanes_of<S>();
  const Wide<S> first = widen(x[0]);
  auto top = load_rest(d, x, n < lanes ? n : 1, first);
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) top = hn::Max(top, load(d, x + i));
  if (i < n) top = hn::Max(top, load_rest(d, x + i, n - i, first));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();
#endif
