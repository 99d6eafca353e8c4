#include "kernels/dropout.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D64 = hn::ScalableTag<u64>;
using V64 = hn::Vec<D64>;

// The 53-bit draws of as many consecutive elements as a vector has 64-bit lanes: Philox 4x32-10 (base/random.h's philox and uniform), each word
// in the lower half of a lane. What gathers in the upper halves is never looked at: the products take the lower ones.
HWY_INLINE V64 draws(u64 key, u64 sample, u64 first) {
  const D64 d;
  const hn::Repartition<u32, D64> d32;
  const V64 m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  const auto product = [&](V64 x, V64 y) HWY_ATTR { return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, y)); };
  const V64 element = hn::Add(hn::Set(d, first), hn::Iota(d, 0));
  V64 a = element, b = hn::ShiftRight<32>(element), c = hn::Set(d, sample), e = hn::Set(d, sample >> 32);
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const V64 p0 = product(a, m0), p1 = product(c, m1);
    a = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), b), hn::Set(d, k0));
    c = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), e), hn::Set(d, k1));
    b = p1;
    e = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const V64 low = hn::And(a, hn::Set(d, 0xFFFFFFFFu));
  return hn::ShiftRight<11>(hn::Or(low, hn::ShiftLeft<32>(b)));
}

template <class T>
HWY_ATTR void drop_range(u64 key, u64 sample, u64 first, i64 n, u64 limit, T keep, T* x) {
  const D64 d;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(u64));
  const hn::RebindToSigned<D64> signed_d;  // the numbers have 53 bits
  using Bits = std::conditional_t<sizeof(T) == 4, u32, u64>;
  HWY_ALIGN u64 kept[HWY_LANES(u64)];  // all ones or zero: a coin's branch would be mispredicted
  for (i64 at = 0; at < n; at += lanes) {
    const auto draw = hn::BitCast(signed_d, draws(key, sample, first + static_cast<u64>(at)));
    hn::Store(hn::BitCast(d, hn::VecFromMask(signed_d, hn::Ge(draw, hn::Set(signed_d, static_cast<i64>(limit))))), d, kept);
    const i64 count = std::min(lanes, n - at);
    for (i64 i = 0; i < count; ++i) x[at + i] = std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(x[at + i] * keep) & kept[i]));
  }
}

void drop_f32(u64 key, u64 sample, u64 first, i64 n, u64 limit, float keep, float* x) { drop_range(key, sample, first, n, limit, keep, x); }
void drop_f64(u64 key, u64 sample, u64 first, i64 n, u64 limit, double keep, double* x) { drop_range(key, sample, first, n, limit, keep, x); }

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {
HWY_EXPORT(drop_f32);
HWY_EXPORT(drop_f64);

// uniform < p as whole numbers: draw * 2^-53 < p.
u64 limit_of(double p) { return static_cast<u64>(std::ceil(p * 0x1p53)); }
}  // namespace

template <>
void drop<float>(RandomKey key, i64 sample, i64 first, i64 n, double p, float* x) {
  HWY_DYNAMIC_DISPATCH(drop_f32)
  (key.value, static_cast<u64>(sample), static_cast<u64>(first), n, limit_of(p), static_cast<float>(1 / (1 - p)), x);
}
template <>
void drop<double>(RandomKey key, i64 sample, i64 first, i64 n, double p, double* x) {
  HWY_DYNAMIC_DISPATCH(drop_f64)(key.value, static_cast<u64>(sample), static_cast<u64>(first), n, limit_of(p), 1 / (1 - p), x);
}

void dropout(const Tensor& x, double p, RandomKey key, i64 first_sample, const Tensor& y) {
  require(x.rank() >= 1 && x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape(), "[dropout] expected contiguous views of one shape");
  if (y.device().is_meta() || y.elems() == 0) return;
  for_dtype("dropout", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const i64 row = x.elems() / x.size(0), grain = std::min<i64>(row, 1 << 13), pieces = ceil_div(row, grain);
    Stream::current().run(x.size(0) * pieces, [=](i64 task, int) {
      const i64 b = task / pieces, begin = task % pieces * grain, n = std::min(grain, row - begin), at = b * row + begin;
      if (to != from) std::memcpy(to + at, from + at, static_cast<size_t>(n) * sizeof(T));
      drop(key, first_sample + b, begin, n, p, to + at);
    });
  });
}

}  // namespace spillway::kernels
#endif
