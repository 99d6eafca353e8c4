// Products with few rows: how B's words come from memory, for whatever multiplies them. Compiled once for each instruction set (included
// after hwy/highway.h, never by a header).
#if defined(SPILLWAY_GEMM_FEW_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_GEMM_FEW_ROWS_INL_H
#undef SPILLWAY_GEMM_FEW_ROWS_INL_H
#else
#define SPILLWAY_GEMM_FEW_ROWS_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "kernels/matmul/gemm_few_rows.h"
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
// Columns whose k is contiguous that are read together, in strips of columns far apart: those are then long stretches of memory, one a
// lane, which the processor fetches ahead faster than it does one.
constexpr i64 kTogether = 256;
// Contiguous columns whose sums stay in the first-level cache while rows of B are read over all of them.
template <int kRows>
constexpr i64 kPieceColumns = kRows <= 2 ? 2048 : 1024;
// Elements of a line of memory.
template <class T>
constexpr i64 kLine = 64 / static_cast<i64>(sizeof(T));

// Elements of k in a 32-bit word.
template <class T>
constexpr i64 kInWord = 4 / static_cast<i64>(sizeof(T));

// A row of B's words, its columns being contiguous: f32, or what is widened to it.
template <class P, int kVectors, class T>
HWY_INLINE void load_words(const T* from, i64, bool, V (&word)[kVectors]) {
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) word[v] = load(Floats(), from + v * kLanes);
}
// Of pairs two rows are interleaved within blocks of eight columns.
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

// Undoes it, for sums of whole blocks.
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
