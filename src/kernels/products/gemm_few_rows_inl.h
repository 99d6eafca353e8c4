// Loads the words of B from memory for products with few rows (gemm_few_rows.h), whichever instruction multiplies
// the words. This file is compiled once per instruction set (included after hwy/highway.h, never by a header).
#if defined(SPILLWAY_GEMM_FEW_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_GEMM_FEW_ROWS_INL_H
#undef SPILLWAY_GEMM_FEW_ROWS_INL_H
#else
#define SPILLWAY_GEMM_FEW_ROWS_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "kernels/products/gemm_few_rows.h"
#include "kernels/storage_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::load;

using Floats = hn::ScalableTag<float>;
using Words = hn::ScalableTag<u32>;
using V = hn::Vec<Floats>;
constexpr i64 kLanes = static_cast<i64>(HWY_LANES(float));
// The number of columns with contiguous k that are computed together. They are processed in strips whose columns are far apart, so
// that each lane of a vector reads a long stretch of memory. The processor prefetches several long stretches faster than a single one.
constexpr i64 kTogether = 256;
// The number of columns that are computed together if columns are contiguous in
// memory. Their sums fit into the first-level cache while the rows of B are read.
template <int kRows>
constexpr i64 kPieceColumns = kRows <= 2 ? 2048 : 1024;
// The number of elements of type T in a cache line.
template <class T>
constexpr i64 kLine = 64 / static_cast<i64>(sizeof(T));

// The number of k in a 32-bit word of type T.
template <class T>
constexpr i64 kInWord = 4 / static_cast<i64>(sizeof(T));

// Loads the words of one row of B, for columns that are contiguous in memory, as f32 or widened to f32.
template <class P, int kVectors, class T>
HWY_INLINE void load_words(const T* from, i64, bool, V (&word)[kVectors]) {
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) word[v] = load(Floats(), from + v * kLanes);
}
// Loads two rows of B and interleaves them, for bf16 pairs. The words within each two vectors are then not in the order of the columns;
// put_in_order() restores that order in the sums. `both` is false if there is no second row.
template <class P, int kVectors>
requires(sizeof(P) == 2) HWY_INLINE void load_words(const BFloat16* from, i64 k_stride, bool both, V (&word)[kVectors]) {
  const hn::Repartition<u16, Floats> halves;
  const u16 *even = reinterpret_cast<const u16*>(from), *odd = reinterpret_cast<const u16*>(from + (both ? k_stride : 0));
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v += 2) {
    const auto low = hn::LoadU(halves, even + v * kLanes), high = both ? hn::LoadU(halves, odd + v * kLanes) : hn::Zero(halves);
    word[v] = hn::BitCast(Floats(), hn::InterleaveLower(halves, low, high));
    word[v + 1] = hn::BitCast(Floats(), hn::InterleaveUpper(halves, low, high));
  }
}

// Puts the sums of bf16 pairs, whose words load_words() interleaved, into the order of the columns. n is a multiple of two vectors.
template <class P>
HWY_INLINE void put_in_order(i64 n, float* sums) {
  if constexpr (sizeof(P) == 2) {
    HWY_ALIGN float lanes[2 * kLanes];
    for (; n > 0; n -= 2 * kLanes, sums += 2 * kLanes) {
      std::copy_n(sums, 2 * kLanes, lanes);
      for (i64 i = 0; i < kLanes; i += 4) {
        std::copy_n(lanes + i, 4, sums + 2 * i);
        std::copy_n(lanes + kLanes + i, 4, sums + 2 * i + 4);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();

#endif
