#include "kernels/gemm.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/storage_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::load;
using kernels::HWY_NAMESPACE::store;

// Registers: kRows x kVectors sums, kVectors of B and one of A.
constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int kVectors = 3;

template <class P>
constexpr i64 panel_extent(Side side) {
  return side == Side::a ? kRows : kVectors * static_cast<i64>(HWY_LANES(Wide<P>));
}

// Sixteen words at a time where k is contiguous: 4x4 transposes in 128-bit lanes; only the rest goes element by element.
template <class V>
HWY_INLINE void transpose_words(V r0, V r1, V r2, V r3, float* to, i64 panel) {
  const hn::Full128<float> d;
  const hn::Full128<double> dd;
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1)), high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3)), high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, to + panel);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, to + 2 * panel);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, to + 3 * panel);
}

template <class T>
HWY_ATTR void transpose_block(const T* from, i64 outer_stride, float* to, i64 panel) {
  const hn::Full128<float> d;
  transpose_words(load(d, from), load(d, from + outer_stride), load(d, from + 2 * outer_stride), load(d, from + 3 * outer_stride), to,
                  panel);
}

HWY_ATTR void transpose_block(const double* from, i64 outer_stride, double* to, i64 panel) {
  const hn::Full128<double> d;
  for (int i = 0; i < 4; i += 2) {
    for (int j = 0; j < 4; j += 2) {
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
    for (i64 i = 0; i < whole; i += 4) transpose_block(from.data + i * from.outer_stride + p, from.outer_stride, to + p * panel + i, panel);
    for (i64 i = whole; i < outer; ++i) {
      for (i64 q = p; q < p + 4; ++q) to[q * panel + i] = widen(from.data[i * from.outer_stride + q]);
    }
  }
  for (i64 p = whole_k; p < k; ++p) {
    for (i64 i = 0; i < outer; ++i) to[p * panel + i] = widen(from.data[i * from.outer_stride + p]);
  }
}

// Rows contiguous in memory: each is read once from end to end and dealt to the panels.
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

// Panel after panel: to[i / panel][p][i % panel] = from(i, p); what is missing of the last panel is zero.
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

// Pairs of bf16 lie as words: first the even k, then the odd one, zero beyond the last.
HWY_INLINE u32 pair_of(const Operand<BFloat16>& from, i64 outer, i64 p, i64 k) {
  const BFloat16* even = from.data + outer * from.outer_stride + p * from.k_stride;
  return even[0].bits | (p + 1 < k ? static_cast<u32>(even[from.k_stride].bits) << 16 : 0);
}

// As pack_transposed, of pairs: eight k of four rows at a time.
HWY_ATTR void pack_pairs_transposed(const Operand<BFloat16>& from, i64 outer, i64 k, i64 panel, u32* to) {
  const hn::Full128<float> d;
  const hn::Full128<u16> halves;
  const i64 whole = outer / 4 * 4, whole_k = k / 8 * 8;
  const auto row = [&](i64 i, i64 p) HWY_ATTR {
    return hn::BitCast(d, hn::LoadU(halves, reinterpret_cast<const u16*>(from.data + i * from.outer_stride + p)));
  };
  for (i64 p = 0; p < whole_k; p += 8) {
    for (i64 i = 0; i < whole; i += 4) {
      transpose_words(row(i, p), row(i + 1, p), row(i + 2, p), row(i + 3, p), reinterpret_cast<float*>(to + p / 2 * panel + i), panel);
    }
  }
  for (i64 p = 0; p < k; p += 2) {
    for (i64 i = p < whole_k ? whole : 0; i < outer; ++i) to[p / 2 * panel + i] = pair_of(from, i, p, k);
  }
}

// As pack_contiguous: two rows of k are read side by side and interleaved.
template <Side side>
HWY_ATTR void pack_pairs_contiguous(const Operand<BFloat16>& from, i64 outer, i64 k, u32* to) {
  constexpr i64 panel = panel_extent<BFloat16>(side);
  const hn::CappedTag<u32, static_cast<size_t>(std::min<i64>(panel, HWY_LANES(u32)))> d;
  const hn::Rebind<u16, decltype(d)> halves;
  const i64 lanes = static_cast<i64>(hn::Lanes(d)), whole = outer / panel * panel, pairs = packed_depth<BFloat16>(k) / 2;
  for (i64 p = 0; p < pairs; ++p) {
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

// Panel after panel: to[i / panel][p / 2][i % panel][p % 2] = from(i, p).
template <Side side>
HWY_ATTR void pack_pairs(Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to_elements) {
  constexpr i64 panel = panel_extent<BFloat16>(side);
  const i64 pairs = packed_depth<BFloat16>(k) / 2;
  u32* to = reinterpret_cast<u32*>(to_elements);
  if (const i64 used = outer % panel; used != 0) {
    u32* last = to + (outer - used) * pairs;
    for (i64 p = 0; p < pairs; ++p) std::fill(last + p * panel + used, last + (p + 1) * panel, 0u);
  }
  if (from.outer_stride == 1) return pack_pairs_contiguous<side>(from, outer, k, to);
  for (i64 i = 0; i < outer; i += panel) {
    const Operand<BFloat16> rows = from.from(i, 0);
    const i64 used = std::min(panel, outer - i);
    if (from.k_stride == 1) {
      pack_pairs_transposed(rows, used, k, panel, to + i * pairs);
      continue;
    }
    for (i64 p = 0; p < pairs; ++p) {
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

// The micro-kernel's sums, kUsed vectors of each row of the panel.
template <int kUsed, class P>
using Sums = hn::Vec<hn::ScalableTag<Wide<P>>>[kRows][kUsed];

template <int kUsed, class T>
HWY_INLINE void add_products(i64 k, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, Sums<kUsed, T>& sum) {
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(T));
  for (i64 p = 0; p < k; ++p) {
    hn::Vec<decltype(d)> column[kUsed];
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) column[v] = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto row = hn::Set(d, a[r]);
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::MulAdd(row, column[v], sum[r][v]);
    }
    a += kRows;
    b += kVectors * lanes;
  }
}

// Pairs widened to f32: all products of the even k, then those of the odd.
template <int kUsed>
HWY_INLINE void add_products(i64 k, const BFloat16* a_elements, const BFloat16* b_elements, Sums<kUsed, BFloat16>& sum) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<u32> bits;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  const auto upper = hn::Set(bits, 0xffff0000u);
  const u32 *HWY_RESTRICT a = reinterpret_cast<const u32*>(a_elements), *HWY_RESTRICT b = reinterpret_cast<const u32*>(b_elements);
  for (i64 p = 0; p < k; p += 2) {
    hn::Vec<decltype(d)> column[kUsed];
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) column[v] = hn::BitCast(d, hn::ShiftLeft<16>(hn::LoadU(bits, b + v * lanes)));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto row = hn::BitCast(d, hn::ShiftLeft<16>(hn::Set(bits, a[r])));
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::MulAdd(row, column[v], sum[r][v]);
    }
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) column[v] = hn::BitCast(d, hn::And(hn::LoadU(bits, b + v * lanes), upper));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto row = hn::BitCast(d, hn::And(hn::Set(bits, a[r]), upper));
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::MulAdd(row, column[v], sum[r][v]);
    }
    a += kRows;
    b += kVectors * lanes;
  }
}

#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR_AVX3 ",avx512bf16")
// The processor's own products of pairs (VDPBF16PS). The sums come back through memory: a function of another instruction set is not
// inlined.
template <int kUsed>
HWY_NOINLINE void dot_pairs(i64 k, const BFloat16* a_elements, const BFloat16* b_elements, float* to) {
  const u32 *a = reinterpret_cast<const u32*>(a_elements), *b = reinterpret_cast<const u32*>(b_elements);
  __m512 sum[kRows][kUsed];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (i64 p = 0; p < k; p += 2) {
    __m512bh column[kUsed];
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) column[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + v * 16));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto row = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[r])));
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], row, column[v]);
    }
    a += kRows;
    b += kVectors * 16;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) _mm512_store_ps(to + (r * kUsed + v) * 16, sum[r][v]);
  }
}
HWY_POP_ATTRIBUTES
#endif

// Writes the sums (rows x panel columns, in the buffer) into C.
template <class P, class Out>
void store_edge(const Wide<P>* sums, i64 panel, i64 rows, i64 columns, Output<P, Out> c) {
  for (i64 r = 0; r < rows; ++r) {
    for (i64 j = 0; j < columns; ++j) {
      Wide<P> value = sums[r * panel + j];
      if (c.added) value = c.added[r * c.added_stride + j] + value;
      if (c.bias) value = value + widen(c.bias[j]);
      c.data[r * c.row_stride + j] = narrow<Out>(value);
    }
  }
}

template <int kUsed, class P, class Out>
HWY_ATTR void micro(i64 k, const P* HWY_RESTRICT a, const P* HWY_RESTRICT b, i64 rows, i64 columns, Output<P, Out> c, bool own_dots) {
  using T = Wide<P>;
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(T));
  Sums<kUsed, P> sum;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::Zero(d);
  }
  // C is far away when k is short and the matrix large: ask for it before the sums are made.
  for (i64 r = 0; r < rows; ++r) {
    for (i64 j = 0; j < columns; j += 64 / static_cast<i64>(sizeof(Out))) __builtin_prefetch(c.data + r * c.row_stride + j, 1);
  }
  HWY_ALIGN T edge[kRows * kUsed * lanes];
  if (own_dots) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (sizeof(P) == 2) {
      dot_pairs<kUsed>(k, a, b, edge);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::Load(d, edge + (r * kUsed + v) * lanes);
      }
    }
#endif
  } else {
    add_products<kUsed>(k, a, b, sum);
  }
  if (rows == kRows && columns == kUsed * lanes) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) {
        auto value = sum[r][v];
        if (c.added) value = hn::Add(hn::LoadU(d, c.added + r * c.added_stride + v * lanes), value);
        if (c.bias) value = hn::Add(value, load(d, c.bias + v * lanes));
        store(d, value, c.data + r * c.row_stride + v * lanes);
      }
    }
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) hn::StoreU(sum[r][v], d, edge + (r * kUsed + v) * lanes);
  }
  store_edge(edge, kUsed * lanes, rows, columns, c);
}

// A strip's panels of A stay in the first-level cache or the second; a panel of B is used for all of them before the next one.
template <class P, class Out>
HWY_ATTR void multiply_panels(i64 m, i64 n, i64 k, Packed<P> a, Packed<P> b, Output<P, Out> c, bool own_dots) {
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(Wide<P>)), panel = kVectors * lanes;
  const i64 depth_a = packed_depth<P>(a.depth), depth_b = packed_depth<P>(b.depth);
  for (i64 j = 0; j < n; j += panel) {
    const i64 columns = std::min(panel, n - j);
    for (i64 i = 0; i < m; i += kRows) {
      const i64 rows = std::min<i64>(kRows, m - i);
      const Output<P, Out> out{c.data + i * c.row_stride + j, c.row_stride, c.added ? c.added + i * c.added_stride + j : nullptr,
                               c.added_stride, c.bias ? c.bias + j : nullptr};
      const P *rows_a = a.data + i * depth_a + a.first * kRows, *columns_b = b.data + j * depth_b + b.first * panel;
      if (columns > 2 * lanes) {
        micro<3>(k, rows_a, columns_b, rows, columns, out, own_dots);
      } else if (columns > lanes) {
        micro<2>(k, rows_a, columns_b, rows, columns, out, own_dots);
      } else {
        micro<1>(k, rows_a, columns_b, rows, columns, out, own_dots);
      }
    }
  }
}

// Highway's bit for younger processors than AVX-512's first is asked too, so that a test can pin the widening path.
HWY_INLINE bool multiplies_pairs() {
#if HWY_TARGET == HWY_AVX3
  static const bool has = __builtin_cpu_supports("avx512bf16");
  return has && (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
#else
  return false;
#endif
}

void pack_f32(Side side, Operand<float> from, i64 outer, i64 k, float* to) { pack_side(side, from, outer, k, to); }
void pack_f64(Side side, Operand<double> from, i64 outer, i64 k, double* to) { pack_side(side, from, outer, k, to); }
void pack_bf16(Side side, Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to) { pack_side(side, from, outer, k, to); }
void pack_widened(Side side, Operand<BFloat16> from, i64 outer, i64 k, float* to) { pack_side(side, from, outer, k, to); }
void multiply_f32(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, float> c) {
  multiply_panels(m, n, k, a, b, c, false);
}
void multiply_f64(i64 m, i64 n, i64 k, Packed<double> a, Packed<double> b, Output<double, double> c) {
  multiply_panels(m, n, k, a, b, c, false);
}
void multiply_f32_to_bf16(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, BFloat16> c) {
  multiply_panels(m, n, k, a, b, c, false);
}
void multiply_bf16(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, BFloat16> c) {
  multiply_panels(m, n, k, a, b, c, multiplies_pairs());
}
void multiply_bf16_to_f32(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, float> c) {
  multiply_panels(m, n, k, a, b, c, multiplies_pairs());
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels::gemm {

HWY_EXPORT(pack_f32);
HWY_EXPORT(pack_f64);
HWY_EXPORT(pack_bf16);
HWY_EXPORT(pack_widened);
HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
HWY_EXPORT(multiply_f32_to_bf16);
HWY_EXPORT(multiply_bf16);
HWY_EXPORT(multiply_bf16_to_f32);

template <>
void pack(Side side, Operand<float> from, i64 outer, i64 k, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_f32)(side, from, outer, k, to);
}
template <>
void pack(Side side, Operand<double> from, i64 outer, i64 k, double* to) {
  HWY_DYNAMIC_DISPATCH(pack_f64)(side, from, outer, k, to);
}
template <>
void pack(Side side, Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to) {
  HWY_DYNAMIC_DISPATCH(pack_bf16)(side, from, outer, k, to);
}
template <>
void pack(Side side, Operand<BFloat16> from, i64 outer, i64 k, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_widened)(side, from, outer, k, to);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, float> c) {
  HWY_DYNAMIC_DISPATCH(multiply_f32)(m, n, k, a, b, c);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<double> a, Packed<double> b, Output<double, double> c) {
  HWY_DYNAMIC_DISPATCH(multiply_f64)(m, n, k, a, b, c);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, BFloat16> c) {
  HWY_DYNAMIC_DISPATCH(multiply_f32_to_bf16)(m, n, k, a, b, c);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, BFloat16> c) {
  HWY_DYNAMIC_DISPATCH(multiply_bf16)(m, n, k, a, b, c);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, float> c) {
  HWY_DYNAMIC_DISPATCH(multiply_bf16_to_f32)(m, n, k, a, b, c);
}

}  // namespace spillway::kernels::gemm
#endif
