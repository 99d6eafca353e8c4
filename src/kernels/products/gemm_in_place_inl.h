// The part of gemm_cpu.cc that multiplies operands in place. It is compiled
// once per instruction set (included after hwy/highway.h by gemm_cpu.cc only).
#if defined(SPILLWAY_GEMM_IN_PLACE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_GEMM_IN_PLACE_INL_H
#undef SPILLWAY_GEMM_IN_PLACE_INL_H
#else
#define SPILLWAY_GEMM_IN_PLACE_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/products/gemm_in_place.h"
#include "kernels/products/gemm_pack_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sums of the first kHeld rows of a panel of A and kUsed vectors of columns.
template <int kHeld, int kUsed, class T>
struct Block {
  static constexpr i64 kLanes = static_cast<i64>(HWY_LANES(T));
  const hn::ScalableTag<T> d{};
  hn::Vec<hn::ScalableTag<T>> sum[kHeld][kUsed];

  HWY_INLINE void clear() {
#pragma GCC unroll 8
    for (int r = 0; r < kHeld; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::Zero(d);
    }
  }
  // Adds the products of one inner index: element a(r) of each row r of A, times the columns of B at b.
  template <class Element>
  HWY_INLINE void add(Element a, const T* b) {
    hn::Vec<hn::ScalableTag<T>> column[kUsed];
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) column[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kHeld; ++r) {
      const auto row = hn::Set(d, a(r));
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::MulAdd(row, column[v], sum[r][v]);
    }
  }
  HWY_INLINE void store(i64 rows, T* to, i64 row_stride, bool added) const {
#pragma GCC unroll 8
    for (int r = 0; r < kHeld; ++r) {
      if (r >= rows) return;
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) {
        T* place = to + r * row_stride + v * kLanes;
        hn::StoreU(added ? hn::Add(hn::LoadU(d, place), sum[r][v]) : sum[r][v], d, place);
      }
    }
  }
};

template <int kHeld, int kUsed, class T>
HWY_ATTR void columns_block(i64 rows, i64 k, const T* HWY_RESTRICT a, const T* HWY_RESTRICT columns, const i32* HWY_RESTRICT offsets, T* to,
                            bool add) {
  Block<kHeld, kUsed, T> block;
  block.clear();
  for (i64 p = 0; p < k; ++p, a += kRows) block.add([a](int r) HWY_ATTR { return a[r]; }, columns + offsets[p]);
  block.store(rows, to, kStrip, add);
}

template <int kUsed, class T>
HWY_ATTR void lines_block(i64 rows, const Lined<T>& a, const T* HWY_RESTRICT b, T* to, i64 row_stride, bool add) {
  constexpr i64 panel = panel_extent<T>(Side::b);
  Block<kRows, kUsed, T> block;
  block.clear();
  for (i64 line = 0; line < a.lines; ++line) {
    const T* at[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) at[r] = a.rows + (r < rows ? a.row_offsets[r] : 0) + a.line_offsets[line];
    for (i64 i = 0; i < a.length; ++i, b += panel) block.add([&](int r) HWY_ATTR { return at[r][i]; }, b);
  }
  block.store(rows, to, row_stride, add);
}

// Calls f.operator()<vectors>(first column) for each panel of the n columns, where `vectors` is how many vectors the panel needs.
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
      const i64 rows = std::min<i64>(kRows, m - i);
      const T* panel = a.data + i * a.depth;
      T* to = sums + i * kStrip + j;
      if (rows > kRows * 3 / 4) {
        columns_block<kRows, kUsed>(rows, k, panel, columns + j, offsets, to, add);
      } else if (rows > kRows / 2) {
        columns_block<kRows * 3 / 4, kUsed>(rows, k, panel, columns + j, offsets, to, add);
      } else if (rows > kRows / 4) {
        columns_block<kRows / 2, kUsed>(rows, k, panel, columns + j, offsets, to, add);
      } else {
        columns_block<kRows / 4, kUsed>(rows, k, panel, columns + j, offsets, to, add);
      }
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

// Loads the first n elements of a vector and sets the other lanes to zero. n may
// be 0 or less, or more than a vector. No memory beyond the n elements is read.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_first(D d, const T* from, i64 n) {
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(T));
  if (n >= lanes) return hn::LoadU(d, from);
  if (n <= 0) return hn::Zero(d);
  if constexpr (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, from);
  } else {
    HWY_ALIGN T held[lanes] = {};
    for (i64 i = 0; i < n; ++i) held[i] = from[i];
    return hn::Load(d, held);
  }
}

// Adds products to the sums of kHeld rows and kUsed columns. Each sum is kept as kDotParts partial sums.
template <int kHeld, int kUsed, class T>
HWY_ATTR void dots_block(const Lined<T>& a, const T* HWY_RESTRICT columns, i64 stride, T* HWY_RESTRICT sums, i64 row_stride) {
  constexpr int lanes = static_cast<int>(HWY_LANES(T)), parts = static_cast<int>(kDotParts<T>), vectors = parts / lanes;
  const hn::ScalableTag<T> d;
  hn::Vec<decltype(d)> sum[kHeld][kUsed][vectors];
#pragma GCC unroll 3
  for (int r = 0; r < kHeld; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kUsed; ++c) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[r][c][v] = hn::LoadU(d, sums + r * row_stride + c * parts + v * lanes);
    }
  }
  for (i64 line = 0; line < a.lines; ++line, columns += a.length) {
    const T* rows[kHeld];
#pragma GCC unroll 3
    for (int r = 0; r < kHeld; ++r) rows[r] = a.rows + a.row_offsets[r] + a.line_offsets[line];
    const auto add = [&](i64 i, auto load) HWY_ATTR {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        hn::Vec<decltype(d)> row[kHeld];
#pragma GCC unroll 3
        for (int r = 0; r < kHeld; ++r) row[r] = load(rows[r] + i + v * lanes, v);
#pragma GCC unroll 8
        for (int c = 0; c < kUsed; ++c) {
          const auto column = load(columns + c * stride + i + v * lanes, v);
#pragma GCC unroll 3
          for (int r = 0; r < kHeld; ++r) sum[r][c][v] = hn::MulAdd(row[r], column, sum[r][c][v]);
        }
      }
    };
    i64 i = 0;
    for (; i + parts <= a.length; i += parts) add(i, [d](const T* from, int) HWY_ATTR { return hn::LoadU(d, from); });
    if (const i64 left = a.length - i; left > 0) {
      add(i, [d, left](const T* from, int v) HWY_ATTR { return load_first(d, from, left - v * lanes); });
    }
  }
#pragma GCC unroll 3
  for (int r = 0; r < kHeld; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kUsed; ++c) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) hn::StoreU(sum[r][c][v], d, sums + r * row_stride + c * parts + v * lanes);
    }
  }
}

template <int kUsed, class T>
HWY_ATTR void dots_rows(i64 m, Lined<T> a, const T* columns, i64 stride, T* sums, i64 row_stride) {
  constexpr int held = HWY_TARGET == HWY_AVX3 ? 3 : 1;
  for (i64 r = 0; r < m;) {
    const bool whole = m - r >= held;
    whole ? dots_block<held, kUsed>(a, columns, stride, sums, row_stride) : dots_block<1, kUsed>(a, columns, stride, sums, row_stride);
    const i64 done = whole ? held : 1;
    r += done, a.row_offsets += done, sums += done * row_stride;
  }
}

template <class T>
HWY_ATTR void dots(i64 m, i64 n, const Lined<T>& a, const T* columns, i64 stride, T* sums) {
  const i64 row_stride = n * kDotParts<T>;
  for (i64 j = 0; j < n;) {
    const T* from = columns + j * stride;
    T* to = sums + j * kDotParts<T>;
    if (HWY_TARGET == HWY_AVX3 && n - j >= 6) {
      dots_rows<6>(m, a, from, stride, to, row_stride), j += 6;
    } else if (n - j >= 4) {
      dots_rows<4>(m, a, from, stride, to, row_stride), j += 4;
    } else if (n - j >= 2) {
      dots_rows<2>(m, a, from, stride, to, row_stride), j += 2;
    } else {
      dots_rows<1>(m, a, from, stride, to, row_stride), j += 1;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();
#endif
