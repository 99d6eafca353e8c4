#include "kernels/dropout.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

constexpr int kBlock = 16;

// The 53-bit draws of elements first .. first + 15: sixteen Philox 4x32-10 side by side (base/random.h's philox and uniform).
void draws(u64 key, u64 sample, u64 first, u64* out) {
  u32 a[kBlock], b[kBlock], c[kBlock], d[kBlock];
  for (u64 i = 0; i < kBlock; ++i) {
    a[i] = static_cast<u32>(first + i);
    b[i] = static_cast<u32>((first + i) >> 32);
    c[i] = static_cast<u32>(sample);
    d[i] = static_cast<u32>(sample >> 32);
  }
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kBlock; ++i) {
      const u64 p0 = u64{0xD2511F53u} * a[i], p1 = u64{0xCD9E8D57u} * c[i];
      a[i] = static_cast<u32>(p1 >> 32) ^ b[i] ^ k0;
      b[i] = static_cast<u32>(p1);
      c[i] = static_cast<u32>(p0 >> 32) ^ d[i] ^ k1;
      d[i] = static_cast<u32>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < kBlock; ++i) out[i] = (a[i] | static_cast<u64>(b[i]) << 32) >> 11;
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {
HWY_EXPORT(draws);
}

template <class T>
void drop(RandomKey key, i64 sample, i64 first, i64 n, double p, T* x) {
  // uniform < p as whole numbers: draw * 2^-53 < p.
  const u64 limit = static_cast<u64>(std::ceil(p * 0x1p53));
  const T keep = static_cast<T>(1 / (1 - p));
  u64 draw[16];
  for (i64 at = 0; at < n; at += 16) {
    HWY_DYNAMIC_DISPATCH(draws)(key.value, static_cast<u64>(sample), static_cast<u64>(first + at), draw);
    const i64 count = std::min<i64>(16, n - at);
    for (i64 i = 0; i < count; ++i) x[at + i] = draw[i] < limit ? T(0) : x[at + i] * keep;
  }
}
template void drop<float>(RandomKey, i64, i64, i64, double, float*);
template void drop<double>(RandomKey, i64, i64, i64, double, double*);

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
