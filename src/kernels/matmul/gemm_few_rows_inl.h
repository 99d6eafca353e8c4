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
// Sums that registers hold.
constexpr int kSums = HWY_TARGET == HWY_AVX3 ? 16 : 8;
// Columns of one strip: of B with contiguous columns as many as there are sums; of B with contiguous k.
template <int kRows>
constexpr int kWideVectors = kSums / (kRows == 3 ? 4 : kRows);
constexpr int kTransposedVectors = 1;
constexpr i64 kMostColumns = kSums * kLanes;
// How far ahead B is asked for. Of columns whose k is contiguous, lines into the second-level cache; of contiguous columns, rows of k into
// the second level and the first.
constexpr i64 kLinesAhead = 512, kRowsFarAhead = 32, kRowsAhead = 4;

// Elements of k in a 32-bit word.
template <class T>
constexpr i64 kInWord = 4 / static_cast<i64>(sizeof(T));

// Asks for B's memory in the order in which chunk_transposed reads it: strips of columns, in each KiB of k column after column.
template <class T>
class Ahead {
 public:
  Ahead(const Operand<T>& b, i64 begin, i64 end, i64 strip, i64 k)
      : b_(b), begin_(begin), end_(end), strip_(strip), k_(k), depth_(std::min(kTile, k)), column_(begin) {
    ask(kLinesAhead);
  }
  void ask(i64 lines) {
    for (; lines > 0 && begin_ < end_; --lines) {
      __builtin_prefetch(b_.data + column_ * b_.outer_stride + first_ + at_, 0, 2);
      at_ += kLine;
      if (at_ >= depth_) next_column();
    }
  }

 private:
  static constexpr i64 kLine = 64 / static_cast<i64>(sizeof(T)), kTile = 16 * kLine;
  void next_column() {
    at_ = 0;
    if (++column_ < std::min(begin_ + strip_, end_)) return;
    first_ += kTile;
    if (first_ >= k_) {
      first_ = 0;
      begin_ += strip_;
    }
    depth_ = std::min(kTile, k_ - first_);
    column_ = begin_;
  }

  const Operand<T>& b_;
  i64 begin_, end_, strip_, k_, depth_, column_, first_ = 0, at_ = 0;
};

// A row of B's words, its columns being contiguous: f32, or what is widened to it.
template <class P, int kVectors, class T>
HWY_INLINE void load_words(const T* from, i64, bool, V (&word)[kVectors]) {
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) word[v] = load(Floats(), from + v * kLanes);
}
// Of pairs two rows are interleaved within blocks of eight columns: store_words puts what they lead to in order.
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

template <class P, int kVectors>
HWY_INLINE void store_words(const V (&sum)[kVectors], float* to) {
  HWY_ALIGN float lanes[2 * kLanes];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; v += kInWord<P>) {
    if constexpr (sizeof(P) == 4) {
      hn::StoreU(sum[v], Floats(), to + v * kLanes);
    } else {
      hn::Store(sum[v], Floats(), lanes);
      hn::Store(sum[v + 1], Floats(), lanes + kLanes);
      for (i64 i = 0; i < kLanes; i += 4) {
        std::memcpy(to + v * kLanes + 2 * i, lanes + i, 16);
        std::memcpy(to + v * kLanes + 2 * i + 4, lanes + kLanes + i, 16);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();

#endif
