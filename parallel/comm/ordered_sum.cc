#include "parallel/comm/ordered_sum.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "parallel/comm/ordered_sum.cc"
#include <hwy/foreach_target.h>
// Highway requires that these headers are included after foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::parallel {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
T sum_of_one(const T* const* ranks, i64 count, i64 i) {
  T total{};
  for (i64 begin = 0; begin < count; begin += kSumGroupRanks) {
    T group = ranks[begin][i];
    for (i64 r = begin + 1; r < std::min(count, begin + kSumGroupRanks); ++r) group = group + ranks[r][i];
    total = begin == 0 ? group : total + group;
  }
  return total;
}

// Sums four vectors at the same time. So enough additions are in progress at
// once, and stores that bypass the caches fill whole cache lines.
template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
struct Four {
  V a, b, c, d;

  static HWY_INLINE Four load(D tag, const T* from) {
    const size_t lanes = hn::Lanes(tag);
    return {hn::LoadU(tag, from), hn::LoadU(tag, from + lanes), hn::LoadU(tag, from + 2 * lanes), hn::LoadU(tag, from + 3 * lanes)};
  }
  HWY_INLINE Four operator+(const Four& o) const { return {hn::Add(a, o.a), hn::Add(b, o.b), hn::Add(c, o.c), hn::Add(d, o.d)}; }
  HWY_INLINE void store(D tag, T* to) const {
    const size_t lanes = hn::Lanes(tag);
    hn::StoreU(a, tag, to), hn::StoreU(b, tag, to + lanes), hn::StoreU(c, tag, to + 2 * lanes), hn::StoreU(d, tag, to + 3 * lanes);
  }
  HWY_INLINE void stream(D tag, T* to) const {
    const size_t lanes = hn::Lanes(tag);
    hn::Stream(a, tag, to), hn::Stream(b, tag, to + lanes), hn::Stream(c, tag, to + 2 * lanes), hn::Stream(d, tag, to + 3 * lanes);
  }
};

template <class D, class T>
HWY_INLINE Four<D> sum_of_group(D tag, const T* const* ranks, i64 begin, i64 end, i64 i) {
  Four<D> group = Four<D>::load(tag, ranks[begin] + i);
  for (i64 r = begin + 1; r < end; ++r) group = group + Four<D>::load(tag, ranks[r] + i);
  return group;
}

template <class D, class T>
HWY_INLINE Four<D> sum_of_four(D tag, const T* const* ranks, i64 count, i64 i) {
  Four<D> total = sum_of_group(tag, ranks, 0, std::min(count, kSumGroupRanks), i);
  for (i64 begin = kSumGroupRanks; begin < count; begin += kSumGroupRanks) {
    total = total + sum_of_group(tag, ranks, begin, std::min(count, begin + kSumGroupRanks), i);
  }
  return total;
}

template <class T>
void sum_all(const T* const* ranks, i64 count, T* sum, i64 begin, i64 end, Stores stores) {
  const hn::ScalableTag<T> tag;
  const i64 step = 4 * static_cast<i64>(hn::Lanes(tag)), step_bytes = step * static_cast<i64>(sizeof(T));
  i64 i = begin;
  if (stores == Stores::past_caches) {
    const i64 beyond = static_cast<i64>(reinterpret_cast<std::uintptr_t>(sum + begin)) & (step_bytes - 1);
    const i64 head = beyond == 0 ? begin : std::min(end, begin + (step_bytes - beyond) / static_cast<i64>(sizeof(T)));
    for (; i < head; ++i) sum[i] = sum_of_one(ranks, count, i);
    for (; i + step <= end; i += step) sum_of_four(tag, ranks, count, i).stream(tag, sum + i);
    hwy::FlushStream();
  }
  for (; i + step <= end; i += step) sum_of_four(tag, ranks, count, i).store(tag, sum + i);
  for (; i < end; ++i) sum[i] = sum_of_one(ranks, count, i);
}

void sum_f32(const float* const* ranks, i64 count, float* sum, i64 begin, i64 end, Stores stores) {
  sum_all(ranks, count, sum, begin, end, stores);
}
void sum_f64(const double* const* ranks, i64 count, double* sum, i64 begin, i64 end, Stores stores) {
  sum_all(ranks, count, sum, begin, end, stores);
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::parallel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::parallel {
HWY_EXPORT(sum_f32);
HWY_EXPORT(sum_f64);

void ordered_sum(std::span<const float* const> ranks, float* sum, i64 begin, i64 end, Stores stores) {
  require(!ranks.empty(), "[ordered_sum] expected the numbers of at least one rank, got none");
  HWY_DYNAMIC_DISPATCH(sum_f32)(ranks.data(), std::ssize(ranks), sum, begin, end, stores);
}

void ordered_sum(std::span<const double* const> ranks, double* sum, i64 begin, i64 end, Stores stores) {
  require(!ranks.empty(), "[ordered_sum] expected the numbers of at least one rank, got none");
  HWY_DYNAMIC_DISPATCH(sum_f64)(ranks.data(), std::ssize(ranks), sum, begin, end, stores);
}

}  // namespace spillway::parallel
#endif
