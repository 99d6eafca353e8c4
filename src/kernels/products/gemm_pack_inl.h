// The part of gemm_cpu.cc that packs operands. It is compiled once per instruction set (included after hwy/highway.h by gemm_cpu.cc only).
// The outer dimension of an operand is the one that is not k: m for A and n for B. A panel holds kRows rows of A, or as many columns of B
// as kVectors vectors have lanes. A panel stores the elements of all its rows or columns for the first k, then those for the next k; panels
// of bf16 store pairs of k. Missing rows or columns of the last panel are zero.
#if defined(SPILLWAY_GEMM_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_GEMM_PACK_INL_H
#undef SPILLWAY_GEMM_PACK_INL_H
#else
#define SPILLWAY_GEMM_PACK_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/products/gemm.h"
#include "kernels/storage_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::load;

// The micro-kernel keeps kRows x kVectors vectors of sums, kVectors vectors of B and one of A in registers.
constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int kVectors = 3;

template <class P>
constexpr i64 panel_extent(Side side) {
  return side == Side::a ? kRows : kVectors * static_cast<i64>(HWY_LANES(Wide<P>));
}

// Loads four words of each of several rows into the 128-bit blocks of one vector: rows i, i + 4, and so on. transpose_rows() then
// transposes four such vectors within their 128-bit blocks. Operands whose k are contiguous are packed with these two functions.
template <class D, class Row>
HWY_INLINE hn::Vec<D> stacked(D d, Row row, i64 i) {
  constexpr i64 lanes = static_cast<i64>(hn::MaxLanes(D()));
  if constexpr (lanes == 4) {
    return row(i);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, stacked(half, row, i + lanes / 2), stacked(half, row, i));
  }
}

// Transposes four words of each of the rows i, i + 1, …; there are as many rows as D has lanes.
template <class D, class Row>
HWY_INLINE void transpose_rows(D d, Row row, i64 i, float* to, i64 panel) {
  const hn::Repartition<double, D> dd;
  const auto r0 = stacked(d, row, i), r1 = stacked(d, row, i + 1), r2 = stacked(d, row, i + 2), r3 = stacked(d, row, i + 3);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1)), high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3)), high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, to + i);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, to + panel + i);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, to + 2 * panel + i);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, to + 3 * panel + i);
}

// Transposes four words of each of `outer` rows, except up to three rows at the end. row(i) returns the four words of row i.
template <class Row>
HWY_INLINE void transpose_words(Row row, i64 outer, float* to, i64 panel) {
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  i64 i = 0;
  for (; i + lanes <= outer; i += lanes) transpose_rows(hn::ScalableTag<float>(), row, i, to, panel);
  if constexpr (lanes > 8) {
    for (; i + 8 <= outer; i += 8) transpose_rows(hn::CappedTag<float, 8>(), row, i, to, panel);
  }
  for (; i + 4 <= outer; i += 4) transpose_rows(hn::Full128<float>(), row, i, to, panel);
}

template <class T>
HWY_ATTR void transpose_block(const T* from, i64 outer_stride, i64 outer, float* to, i64 panel) {
  const hn::Full128<float> d;
  transpose_words([=](i64 i) HWY_ATTR { return load(d, from + i * outer_stride); }, outer, to, panel);
}

HWY_ATTR void transpose_block(const double* from, i64 outer_stride, i64 outer, double* to, i64 panel) {
  const hn::Full128<double> d;
  for (i64 i = 0; i < outer / 4 * 4; i += 2) {
    for (i64 j = 0; j < 4; j += 2) {
      const auto r0 = hn::LoadU(d, from + i * outer_stride + j), r1 = hn::LoadU(d, from + (i + 1) * outer_stride + j);
      hn::StoreU(hn::InterleaveLower(d, r0, r1), d, to + j * panel + i);
      hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, to + (j + 1) * panel + i);
    }
  }
}

template <class T, class P>
HWY_ATTR void pack_transposed(Operand<T> from, i64 outer, i64 k, i64 panel, P* to) {
  const i64 whole = outer / 4 * 4, whole_k = k / 4 * 4;
  for (i64 p = 0; p < whole_k; p += 4) {
    transpose_block(from.data + p, from.outer_stride, outer, to + p * panel, panel);
    for (i64 i = whole; i < outer; ++i) {
      for (i64 q = p; q < p + 4; ++q) to[q * panel + i] = widen(from.data[i * from.outer_stride + q]);
    }
  }
  for (i64 p = whole_k; p < k; ++p) {
    for (i64 i = 0; i < outer; ++i) to[p * panel + i] = widen(from.data[i * from.outer_stride + p]);
  }
}

// Packs an operand whose outer dimension (m of A, n of B) is contiguous in memory. The elements of each k are read once from end to end and
// distributed over the panels.
template <Side side, class T, class P>
HWY_ATTR void pack_contiguous(Operand<T> from, i64 outer, i64 k, P* to) {
  constexpr i64 panel = panel_extent<P>(side);
  const hn::CappedTag<P, static_cast<size_t>(std::min<i64>(panel, HWY_LANES(P)))> d;
  const i64 lanes = static_cast<i64>(hn::Lanes(d)), whole = outer / panel * panel;
  for (i64 p = 0; p < k; ++p) {
    const T* source = from.data + p * from.k_stride;
    for (i64 i = 0; i < whole; i += panel) {
      for (i64 j = 0; j < panel; j += lanes) hn::StoreU(load(d, source + i + j), d, to + i * k + p * panel + j);
    }
    for (i64 i = whole; i < outer; ++i) to[whole * k + p * panel + i - whole] = widen(source[i]);
  }
}

// Packs an operand of any strides, panel after panel: to[i / panel][p][i % panel] = from(i, p). Missing rows or columns of the last panel
// become zero.
template <Side side, class T, class P>
HWY_ATTR void pack_panels(Operand<T> from, i64 outer, i64 k, P* to) {
  constexpr i64 panel = panel_extent<P>(side);
  if (const i64 used = outer % panel; used != 0) {
    P* last = to + (outer - used) * k;
    for (i64 p = 0; p < k; ++p) std::fill(last + p * panel + used, last + (p + 1) * panel, P(0));
  }
  if (from.outer_stride == 1) return pack_contiguous<side>(from, outer, k, to);
  for (i64 i = 0; i < outer; i += panel) {
    const Operand<T> rows = from.from(i, 0);
    const i64 used = std::min(panel, outer - i);
    if (from.k_stride == 1) {
      pack_transposed(rows, used, k, panel, to + i * k);
      continue;
    }
    for (i64 p = 0; p < k; ++p) {
      for (i64 r = 0; r < used; ++r) to[i * k + p * panel + r] = widen(rows.data[r * rows.outer_stride + p * rows.k_stride]);
    }
  }
}

// Returns a pair of bf16 as one word. The lower half is the element at the even
// inner index p, the upper half the element at p + 1, or zero if p + 1 = k.
HWY_INLINE u32 pair_of(const Operand<BFloat16>& from, i64 outer, i64 p, i64 k) {
  const BFloat16* even = from.data + outer * from.outer_stride + p * from.k_stride;
  return even[0].bits | (p + 1 < k ? static_cast<u32>(even[from.k_stride].bits) << 16 : 0);
}

// Packs pairs of an operand whose k are contiguous, eight k at a time, as pack_transposed() does for single elements.
HWY_ATTR void pack_pairs_transposed(const Operand<BFloat16>& from, i64 outer, i64 k, i64 panel, u32* to) {
  const hn::Full128<float> d;
  const hn::Full128<u16> halves;
  const i64 whole = outer / 4 * 4, whole_k = k / 8 * 8;
  for (i64 p = 0; p < whole_k; p += 8) {
    const u16* rows = reinterpret_cast<const u16*>(from.data + p);
    const auto row = [=, stride = from.outer_stride](i64 i) HWY_ATTR { return hn::BitCast(d, hn::LoadU(halves, rows + i * stride)); };
    transpose_words(row, outer, reinterpret_cast<float*>(to + p / 2 * panel), panel);
  }
  for (i64 p = 0; p < k; p += 2) {
    for (i64 i = p < whole_k ? whole : 0; i < outer; ++i) to[p / 2 * panel + i] = pair_of(from, i, p, k);
  }
}

// Packs pairs of an operand whose outer dimension (m of A, n of B) is contiguous, as pack_contiguous() does for single elements. Two
// successive k are read side by side and interleaved.
template <Side side>
HWY_ATTR void pack_pairs_contiguous(const Operand<BFloat16>& from, i64 outer, i64 k, u32* to) {
  constexpr i64 panel = panel_extent<BFloat16>(side);
  const hn::CappedTag<u32, static_cast<size_t>(std::min<i64>(panel, HWY_LANES(u32)))> d;
  const hn::Rebind<u16, decltype(d)> halves;
  const i64 lanes = static_cast<i64>(hn::Lanes(d)), whole = outer / panel * panel, pairs = packed_depth<BFloat16>(k) / 2;
  for (i64 p = 0; p < ceil_div(k, 2); ++p) {
    const u16 *even = reinterpret_cast<const u16*>(from.data + 2 * p * from.k_stride), *odd = even + from.k_stride;
    const bool both = 2 * p + 1 < k;
    for (i64 i = 0; i < whole; i += panel) {
      for (i64 j = 0; j < panel; j += lanes) {
        const auto low = hn::PromoteTo(d, hn::LoadU(halves, even + i + j));
        const auto high = both ? hn::PromoteTo(d, hn::LoadU(halves, odd + i + j)) : hn::Zero(d);
        hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), d, to + i * pairs + p * panel + j);
      }
    }
    for (i64 i = whole; i < outer; ++i) to[whole * pairs + p * panel + i - whole] = pair_of(from, i, 2 * p, k);
  }
}

// Packs bf16 pairs, panel after panel: to[i / panel][p / 2][i % panel][p % 2] = from(i, p).
template <Side side>
HWY_ATTR void pack_pairs(Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to_elements) {
  constexpr i64 panel = panel_extent<BFloat16>(side);
  const i64 pairs = packed_depth<BFloat16>(k) / 2;
  u32* to = reinterpret_cast<u32*>(to_elements);
  const i64 used_pairs = ceil_div(k, 2);
  if (const i64 used = outer % panel; used != 0) {
    u32* last = to + (outer - used) * pairs;
    for (i64 p = 0; p < used_pairs; ++p) std::fill(last + p * panel + used, last + (p + 1) * panel, 0u);
  }
  for (i64 i = 0; i < outer; i += panel) std::fill(to + i * pairs + used_pairs * panel, to + (i + panel) * pairs, 0u);
  if (from.outer_stride == 1) return pack_pairs_contiguous<side>(from, outer, k, to);
  for (i64 i = 0; i < outer; i += panel) {
    const Operand<BFloat16> rows = from.from(i, 0);
    const i64 used = std::min(panel, outer - i);
    if (from.k_stride == 1) {
      pack_pairs_transposed(rows, used, k, panel, to + i * pairs);
      continue;
    }
    for (i64 p = 0; p < used_pairs; ++p) {
      for (i64 r = 0; r < used; ++r) to[i * pairs + p * panel + r] = pair_of(rows, r, 2 * p, k);
    }
  }
}

template <class T, class P>
HWY_ATTR void pack_side(Side side, Operand<T> from, i64 outer, i64 k, P* to) {
  side == Side::a ? pack_panels<Side::a>(from, outer, k, to) : pack_panels<Side::b>(from, outer, k, to);
}
HWY_ATTR void pack_side(Side side, Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to) {
  side == Side::a ? pack_pairs<Side::a>(from, outer, k, to) : pack_pairs<Side::b>(from, outer, k, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();
#endif
