// How gemm_cpu.cc multiplies operands that are read in place, compiled once for each instruction set (included after hwy/highway.h by that
// file alone).
#if defined(SPILLWAY_GEMM_IN_PLACE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_GEMM_IN_PLACE_INL_H
#undef SPILLWAY_GEMM_IN_PLACE_INL_H
#else
#define SPILLWAY_GEMM_IN_PLACE_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/matmul/gemm_in_place.h"
#include "kernels/matmul/gemm_pack_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kUsed vectors of each row of a panel.
template <int kUsed, class T>
struct Block {
  static constexpr i64 kLanes = static_cast<i64>(HWY_LANES(T));
  const hn::ScalableTag<T> d{};
  hn::Vec<hn::ScalableTag<T>> sum[kRows][kUsed];

  HWY_INLINE void clear() {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::Zero(d);
    }
  }
  // a(r): A's element of row r at this k, times the columns at b.
  template <class Element>
  HWY_INLINE void add(Element a, const T* b) {
    hn::Vec<hn::ScalableTag<T>> column[kUsed];
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) column[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto row = hn::Set(d, a(r));
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::MulAdd(row, column[v], sum[r][v]);
    }
  }
  HWY_INLINE void store(i64 rows, T* to, i64 row_stride, bool added) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) return;
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) {
        T* place = to + r * row_stride + v * kLanes;
        hn::StoreU(added ? hn::Add(hn::LoadU(d, place), sum[r][v]) : sum[r][v], d, place);
      }
    }
  }
};

template <int kUsed, class T>
HWY_ATTR void columns_block(i64 rows, i64 k, const T* HWY_RESTRICT a, const T* HWY_RESTRICT columns, const i32* HWY_RESTRICT offsets, T* to,
                            bool add) {
  Block<kUsed, T> block;
  block.clear();
  for (i64 p = 0; p < k; ++p, a += kRows) block.add([a](int r) HWY_ATTR { return a[r]; }, columns + offsets[p]);
  block.store(rows, to, kStrip, add);
}

template <int kUsed, class T>
HWY_ATTR void lines_block(i64 rows, const Lined<T>& a, const T* HWY_RESTRICT b, T* to, i64 row_stride, bool add) {
  constexpr i64 panel = panel_extent<T>(Side::b);
  Block<kUsed, T> block;
  block.clear();
  for (i64 line = 0; line < a.lines; ++line) {
    const T* at[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) at[r] = a.rows + (r < rows ? a.row_offsets[r] : 0) + a.line_offsets[line];
    for (i64 i = 0; i < a.length; ++i, b += panel) block.add([&](int r) HWY_ATTR { return at[r][i]; }, b);
  }
  block.store(rows, to, row_stride, add);
}

// f.template operator()<vectors>(first column) for each panel of n columns.
template <class T, class F>
HWY_INLINE void for_panels_of(i64 n, F f) {
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(T)), panel = kVectors * lanes;
  for (i64 j = 0; j < n; j += panel) {
    if (n - j > 2 * lanes) {
      f.template operator()<3>(j);
    } else if (n - j > lanes) {
      f.template operator()<2>(j);
    } else {
      f.template operator()<1>(j);
    }
  }
}

template <class T>
HWY_ATTR void columns_panels(i64 m, i64 n, i64 k, Packed<T> a, const T* columns, const i32* offsets, T* sums, bool add) {
  for_panels_of<T>(n, [&]<int kUsed>(i64 j) HWY_ATTR {
    for (i64 i = 0; i < m; i += kRows) {
      columns_block<kUsed>(std::min<i64>(kRows, m - i), k, a.data + i * a.depth, columns + j, offsets, sums + i * kStrip + j, add);
    }
  });
}

template <class T>
HWY_ATTR void lines_panels(i64 m, i64 n, Lined<T> a, Packed<T> b, T* sums, i64 row_stride, bool add) {
  for_panels_of<T>(n, [&]<int kUsed>(i64 j) HWY_ATTR {
    Lined<T> rows = a;
    for (i64 i = 0; i < m; i += kRows, rows.row_offsets += kRows) {
      lines_block<kUsed>(std::min<i64>(kRows, m - i), rows, b.data + j * b.depth, sums + i * row_stride + j, row_stride, add);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();
#endif
