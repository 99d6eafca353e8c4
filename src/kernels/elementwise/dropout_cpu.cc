#include "kernels/elementwise/dropout.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/dropout_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D64 = hn::ScalableTag<u64>;
using V64 = hn::Vec<D64>;

constexpr int kAbreast = 2;  // the number of vectors computed at once; their products overlap, which hides latency

// Computes the 53-bit draws for kAbreast vectors of consecutive elements, one draw in each 64-bit lane, with Philox 4x32-10 (philox and
// uniform in base/random.h). Each 32-bit word of the generator is in the lower half of a lane. The upper halves hold garbage, which has no
// effect because the products read only lower halves.
HWY_INLINE void draws(u64 key, u64 sample, u64 first, V64* out) {
  const D64 d;
  const hn::Repartition<u32, D64> d32;
  const V64 m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  V64 a[kAbreast], b[kAbreast], c[kAbreast], e[kAbreast];
  for (int i = 0; i < kAbreast; ++i) {
    a[i] = hn::Add(hn::Set(d, first + static_cast<u64>(i) * HWY_LANES(u64)), hn::Iota(d, 0));
    b[i] = hn::ShiftRight<32>(a[i]);
    c[i] = hn::Set(d, sample);
    e[i] = hn::Set(d, sample >> 32);
  }
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 2
    for (int i = 0; i < kAbreast; ++i) {
      const V64 p0 = hn::MulEven(hn::BitCast(d32, a[i]), hn::BitCast(d32, m0)),
                p1 = hn::MulEven(hn::BitCast(d32, c[i]), hn::BitCast(d32, m1));
      a[i] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), b[i]), hn::Set(d, k0));
      c[i] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), e[i]), hn::Set(d, k1));
      b[i] = p1;
      e[i] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < kAbreast; ++i) {
    const V64 low = hn::And(a[i], hn::Set(d, 0xFFFFFFFFu));
    out[i] = hn::ShiftRight<11>(hn::Or(low, hn::ShiftLeft<32>(b[i])));
  }
}

template <class T>
HWY_ATTR void drop_range(u64 key, u64 sample, u64 first, i64 n, u64 limit, Wide<T> keep, T* x) {
  const D64 d;
  const hn::RebindToSigned<D64> signed_d;  // comparing the draws as signed numbers is correct, because they have only 53 bits
  const auto last_dropped = hn::Set(signed_d, static_cast<i64>(limit) - 1);
  using Bits = std::conditional_t<sizeof(T) == 2, u16, std::conditional_t<sizeof(T) == 4, u32, u64>>;
  constexpr i64 block = kAbreast * static_cast<i64>(HWY_LANES(u64));
  HWY_ALIGN u64 kept[block];  // kept elements as masks of all ones or zero; a branch on a random bit would often be mispredicted
  for (i64 at = 0; at < n; at += block) {
    V64 draw[kAbreast];
    draws(key, sample, first + static_cast<u64>(at), draw);
    for (int i = 0; i < kAbreast; ++i) {
      const auto over = hn::Gt(hn::BitCast(signed_d, draw[i]), last_dropped);
      hn::Store(hn::BitCast(d, hn::VecFromMask(signed_d, over)), d, kept + i * static_cast<i64>(HWY_LANES(u64)));
    }
    const i64 count = std::min(block, n - at);
    for (i64 i = 0; i < count; ++i) {
      const T scaled = narrow<T>(widen(x[at + i]) * keep);
      x[at + i] = std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(scaled) & kept[i]));
    }
  }
}

SPILLWAY_FOR_TYPES(drop, drop_range);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {
SPILLWAY_EXPORT_TYPES(drop);
}  // namespace

template <class T>
void drop(RandomKey key, i64 sample, i64 first, i64 n, double p, T* x) {
  const auto keep = static_cast<Wide<T>>(1 / (1 - p));
  SPILLWAY_DISPATCH_TYPE(T, drop, key.value, static_cast<u64>(sample), static_cast<u64>(first), n, dropout_limit(p), keep, x);
}
template void drop(RandomKey, i64, i64, i64, double, float*);
template void drop(RandomKey, i64, i64, i64, double, double*);
template void drop(RandomKey, i64, i64, i64, double, BFloat16*);
template void drop(RandomKey, i64, i64, i64, double, Float16*);

void dropout(const Tensor& x, double p, RandomKey key, i64 first_sample, const Tensor& y) {
  require(x.rank() >= 1 && x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape(),
          "[dropout] expected contiguous x and y of the same shape");
  if (y.device().is_meta() || y.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(y, dropout(x, p, key, first_sample, y));
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
