// Vector loads and stores that convert between the type in which elements are stored and the type in which they are computed. This file is
// compiled once per instruction set (included after hwy/highway.h, never by a header). A kernel whose elements are stored as T computes in
// vectors of Wide<T>. f32 and f64 are not converted. bf16 and f16 are widened when they are loaded and rounded when they are stored, as in
// tensor/dtype.h. bf16 is converted with integer operations on every instruction set, f16 with F16C on processors with AVX2.
#if defined(SPILLWAY_STORAGE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_STORAGE_INL_H
#undef SPILLWAY_STORAGE_INL_H
#else
#define SPILLWAY_STORAGE_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Returns how many elements of storage type T one vector holds after widening.
template <class T>
constexpr i64 lanes_of() {
  return static_cast<i64>(HWY_LANES(Wide<T>));
}

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Rebind<u16, D> halves;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(halves, reinterpret_cast<const u16*>(from)))));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Float16* from) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> halves;
  return hn::PromoteTo(d, hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  HWY_ALIGN float lanes[HWY_LANES(float)];
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = widen(from[i]);
  return hn::Load(d, lanes);
#endif
}

template <class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* to) {
  hn::StoreU(v, d, to);
}
template <class D>
HWY_INLINE void store(D, hn::Vec<D> v, BFloat16* to) {
  const hn::RebindToUnsigned<D> bits;
  const hn::RebindToSigned<D> signed_bits;
  const hn::Rebind<u16, D> halves;
  const auto x = hn::BitCast(bits, v);
  const auto odd = hn::And(hn::ShiftRight<16>(x), hn::Set(bits, 1u));
  const auto rounded = hn::Add(x, hn::Add(hn::Set(bits, 0x7fffu), odd));
  const auto quiet = hn::Or(x, hn::Set(bits, 0x400000u));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(v)), quiet, rounded));
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(signed_bits, upper)), halves, reinterpret_cast<u16*>(to));
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, Float16* to) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> halves;
  hn::StoreU(hn::DemoteTo(halves, v), halves, reinterpret_cast<hwy::float16_t*>(to));
#else
  HWY_ALIGN float lanes[HWY_LANES(float)];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = narrow<Float16>(lanes[i]);
#endif
}

/// Loads the first n elements, where n is smaller than a vector, and sets the other lanes to `pad`.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_rest(D d, const T* from, i64 n, Wide<T> pad) {
  HWY_ALIGN Wide<T> lanes[HWY_LANES(Wide<T>)];
  for (i64 i = 0; i < lanes_of<T>(); ++i) lanes[i] = pad;
  if constexpr (std::is_same_v<T, Wide<T>>) {
    std::memcpy(lanes, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (i64 i = 0; i < n; ++i) lanes[i] = widen(from[i]);
  }
  return hn::Load(d, lanes);
}

template <class D, class T>
HWY_INLINE void store_rest(D d, hn::Vec<D> v, T* to, i64 n) {
  HWY_ALIGN T lanes[HWY_LANES(Wide<T>)];
  store(d, v, lanes);
  std::memcpy(to, lanes, static_cast<size_t>(n) * sizeof(T));
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();
#endif
