#include "kernels/products/gemm.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/products/gemm_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/error.h"
#include "base/sanitizers.h"
#include "kernels/products/gemm_in_place_inl.h"
#include "kernels/products/gemm_lines.h"
#include "kernels/products/gemm_pack_inl.h"
#include "kernels/products/gemm_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::store;

// The sums that the micro-kernel keeps in registers: kUsed vectors of columns for each row of a panel of A.
template <int kUsed, class P>
using Sums = hn::Vec<hn::ScalableTag<Wide<P>>>[kRows][kUsed];

// Adds the products of one inner index k to the sums.
template <int kUsed, class T>
HWY_INLINE SPILLWAY_CHECKED_BEFORE void add_product(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, Sums<kUsed, T>& sum) {
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(T));
  hn::Vec<decltype(d)> column[kUsed];
#pragma GCC unroll 3
  for (int v = 0; v < kUsed; ++v) column[v] = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const auto row = hn::Set(d, a[r]);
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::MulAdd(row, column[v], sum[r][v]);
  }
}

template <int kUsed, class T>
HWY_INLINE SPILLWAY_CHECKED_BEFORE void add_products(i64 k, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, Sums<kUsed, T>& sum,
                                                     Lines& lines) {
  constexpr i64 kPanel = kVectors * static_cast<i64>(HWY_LANES(T));
  i64 p = 0;
  for (; p + Lines::kEvery <= k; p += Lines::kEvery) {
    lines.ask();
#pragma GCC unroll 8
    for (i64 q = p; q < p + Lines::kEvery; ++q) add_product<kUsed>(a + q * kRows, b + q * kPanel, sum);
  }
  for (; p < k; ++p) add_product<kUsed>(a + p * kRows, b + p * kPanel, sum);
}

// Adds the products of bf16 pairs, which are widened to f32. Of each pair, the even k is added first, then the odd one.
template <int kUsed>
HWY_INLINE SPILLWAY_CHECKED_BEFORE void add_products(i64 k, const BFloat16* a_elements, const BFloat16* b_elements,
                                                     Sums<kUsed, BFloat16>& sum, Lines& lines) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<u32> bits;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(float));
  const auto upper = hn::Set(bits, 0xffff0000u);
  const u32 *HWY_RESTRICT a = reinterpret_cast<const u32*>(a_elements), *HWY_RESTRICT b = reinterpret_cast<const u32*>(b_elements);
  for (i64 p = 0; p < k; p += 2) {
    if (p % Lines::kEvery == 0) lines.ask();
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
// Adds the products of pairs with AVX512_BF16's instruction VDPBF16PS. The sums are returned through memory, because a function that is
// compiled for another instruction set is not inlined.
template <int kUsed>
HWY_NOINLINE void dot_pairs(i64 k, const BFloat16* a_elements, const BFloat16* b_elements, float* to, Lines& lines) {
  const u32 *a = reinterpret_cast<const u32*>(a_elements), *b = reinterpret_cast<const u32*>(b_elements);
  __m512 sum[kRows][kUsed];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (i64 p = 0; p < k; p += 2) {
    if (p % Lines::kEvery == 0) lines.ask();
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

// Writes rows x columns of a panel's sums, which lie in a buffer with rows of `panel` elements, into C.
template <class P, class Out>
void store_edge(const Wide<P>* sums, i64 panel, i64 rows, i64 columns, const Output<P, Out>& c) {
  for (i64 r = 0; r < rows; ++r) {
    for (i64 j = 0; j < columns; ++j) {
      Wide<P> value = sums[r * panel + j];
      if (c.added) value = c.added[r * c.added_stride + j] + value;
      if (c.bias) value = value + widen(c.bias[j]);
      c.data[r * c.row_stride + j] = narrow<Out>(value);
    }
  }
}

// Computes one panel of A times one panel of B. C is passed by reference because the caller has just stored its members one by one.
// A copy would load the members as one piece, which would wait until all earlier stores are done, also those of the previous sums.
template <int kUsed, class P, class Out>
HWY_ATTR SPILLWAY_CHECKED_BEFORE void micro(i64 k, const P* HWY_RESTRICT a, const P* HWY_RESTRICT b, i64 rows, i64 columns,
                                            const Output<P, Out>& c, bool own_dots, Lines& lines) {
  using T = Wide<P>;
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(T));
  Sums<kUsed, P> sum;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::Zero(d);
  }
  lines.write_to(c, rows, columns, ceil_div(k, Lines::kEvery));
  HWY_ALIGN T edge[kRows * kUsed * lanes];
  if (own_dots) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (sizeof(P) == 2) {
      dot_pairs<kUsed>(k, a, b, edge, lines);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::Load(d, edge + (r * kUsed + v) * lanes);
      }
    }
#endif
  } else {
    add_products<kUsed>(k, a, b, sum, lines);
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

// Returns the part of C that begins at element (i, j).
template <class P, class Out>
HWY_INLINE Output<P, Out> part(const Output<P, Out>& c, i64 i, i64 j) {
  return {c.data + i * c.row_stride + j, c.row_stride, c.added ? c.added + i * c.added_stride + j : nullptr, c.added_stride,
          c.bias ? c.bias + j : nullptr, c.past_caches};
}

// Multiplies panel by panel. The panels of A stay in the first- or second-level cache.
// Each panel of B is multiplied with all panels of A before the next panel of B.
template <class P, class Out>
HWY_ATTR void multiply_panels(i64 m, i64 n, i64 k, Packed<P> a, Packed<P> b, Output<P, Out> c, Ahead next, bool own_dots) {
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(Wide<P>)), panel = kVectors * lanes;
  Lines lines(next, ceil_div(n, panel) * ceil_div(m, i64{kRows}) * ceil_div(k, Lines::kEvery));
  const i64 depth_a = packed_depth<P>(a.depth), depth_b = packed_depth<P>(b.depth);
  for (i64 j = 0; j < n; j += panel) {
    const i64 columns = std::min(panel, n - j);
    for (i64 i = 0; i < m; i += kRows) {
      const i64 rows = std::min<i64>(kRows, m - i);
      const Output<P, Out> out = part(c, i, j);
      const P *rows_a = a.data + i * depth_a + a.first * kRows, *columns_b = b.data + j * depth_b + b.first * panel;
      expect_addressable(rows_a, packed_depth<P>(k) * kRows);
      expect_addressable(columns_b, packed_depth<P>(k) * panel);
      for (i64 r = 0; r < rows; ++r) {
        expect_addressable(out.data + r * out.row_stride, columns);
        if (out.added) expect_addressable(out.added + r * out.added_stride, columns);
      }
      if (out.bias) expect_addressable(out.bias, columns);
      if (columns > 2 * lanes) {
        micro<3>(k, rows_a, columns_b, rows, columns, out, own_dots, lines);
      } else if (columns > lanes) {
        micro<2>(k, rows_a, columns_b, rows, columns, out, own_dots, lines);
      } else {
        micro<1>(k, rows_a, columns_b, rows, columns, out, own_dots, lines);
      }
    }
  }
}

HWY_INLINE Pairs pairs_here() { return HWY_TARGET == HWY_AVX3 ? pairs_by() : Pairs::widened; }

// Returns whether store_past_caches() can write whole tiles of C: each begins at a multiple of a cache line.
template <class Out>
bool goes_past_caches(const Output<BFloat16, Out>& c) {
  constexpr i64 kLine = 64;
  return std::is_same_v<Out, float> && c.past_caches && !c.added && !c.bias && reinterpret_cast<uintptr_t>(c.data) % kLine == 0 &&
         c.row_stride * static_cast<i64>(sizeof(Out)) % kLine == 0;
}

HWY_ATTR void store_past_caches(const float* sums, i64 rows, const Output<BFloat16, float>& c) {
  const hn::ScalableTag<float> d;
  const i64 lanes = static_cast<i64>(hn::Lanes(d));
  for (i64 r = 0; r < rows; ++r) {
    for (i64 j = 0; j < tiles::kColumns; j += lanes)
      hn::Stream(hn::Load(d, sums + r * tiles::kColumns + j), d, c.data + r * c.row_stride + j);
  }
}

// Writes `rows` x `columns` elements of C. The rows of `sums` have tiles::kColumns elements.
template <class Out>
HWY_ATTR void store_tiles(const float* sums, i64 rows, i64 columns, const Output<BFloat16, Out>& c) {
  const hn::ScalableTag<float> d;
  const i64 lanes = static_cast<i64>(hn::Lanes(d)), whole = columns / lanes * lanes;
  for (i64 r = 0; r < rows; ++r) {
    for (i64 j = 0; j < whole; j += lanes) {
      auto value = hn::Load(d, sums + r * tiles::kColumns + j);
      if (c.added) value = hn::Add(hn::LoadU(d, c.added + r * c.added_stride + j), value);
      if (c.bias) value = hn::Add(value, load(d, c.bias + j));
      store(d, value, c.data + r * c.row_stride + j);
    }
  }
  if (whole < columns) store_edge(sums + whole, tiles::kColumns, rows, columns - whole, part(c, 0, whole));
}

template <class Out>
HWY_ATTR void multiply_tiles(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, Out> c, Ahead next) {
  alignas(64) float sums[2 * tiles::kRows * tiles::kColumns];
  Lines lines(next, ceil_div(n, tiles::kColumns) * ceil_div(m, 2 * tiles::kRows) * ceil_div(k, tiles::kStep));
  const i64 depth_a = packed_depth<BFloat16>(a.depth), depth_b = packed_depth<BFloat16>(b.depth);
  const bool past_caches = goes_past_caches(c);
  const tiles::Scope scope;
  for (i64 j = 0; j < n; j += tiles::kColumns) {
    const BFloat16* columns_b = b.data + j * depth_b + b.first * tiles::kColumns;
    for (i64 i = 0; i < m; i += 2 * tiles::kRows) {
      const i64 rows = std::min(2 * tiles::kRows, m - i), columns = std::min(tiles::kColumns, n - j);
      const Output<BFloat16, Out> out = part(c, i, j);
      const BFloat16* rows_a = a.data + i * depth_a + a.first * tiles::kRows;
      const bool streams = past_caches && columns == tiles::kColumns;
      if (!streams) lines.write_to(out, rows, columns, ceil_div(k, tiles::kStep));
      tiles::sums(rows > tiles::kRows ? 2 : 1, k, rows_a, tiles::kRows * depth_a, columns_b, sums, lines);
      if constexpr (std::is_same_v<Out, float>) {
        if (streams) {
          store_past_caches(sums, rows, out);
          continue;
        }
      }
      store_tiles(sums, rows, columns, out);
    }
  }
  if (past_caches) hwy::FlushStream();  // orders these stores before those by which other threads learn that C is complete
}

template <class Out>
HWY_ATTR void multiply_pairs(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, Out> c, Ahead next) {
  const Pairs by = pairs_here();
  if (by == Pairs::tiles) return multiply_tiles(m, n, k, a, b, c, next);
  multiply_panels(m, n, k, a, b, c, next, by == Pairs::vectors);
}

Pairs pairs_of_target() { return pairs_here(); }
void pack_f32(Side side, Operand<float> from, i64 outer, i64 k, float* to) { pack_side(side, from, outer, k, to); }
void pack_f64(Side side, Operand<double> from, i64 outer, i64 k, double* to) { pack_side(side, from, outer, k, to); }
void pack_bf16(Side side, Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to) {
  if (side == Side::a && pairs_here() == Pairs::tiles) return tiles::pack_a(from, outer, k, to);
  pack_side(side, from, outer, k, to);
}
void pack_widened(Side side, Operand<BFloat16> from, i64 outer, i64 k, float* to) { pack_side(side, from, outer, k, to); }
void pack_widened_f16(Side side, Operand<Float16> from, i64 outer, i64 k, float* to) { pack_side(side, from, outer, k, to); }
void multiply_f32(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, float> c, Ahead next) {
  multiply_panels(m, n, k, a, b, c, next, false);
}
void multiply_f64(i64 m, i64 n, i64 k, Packed<double> a, Packed<double> b, Output<double, double> c, Ahead next) {
  multiply_panels(m, n, k, a, b, c, next, false);
}
void multiply_f32_to_bf16(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, BFloat16> c, Ahead next) {
  multiply_panels(m, n, k, a, b, c, next, false);
}
void multiply_f32_to_f16(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, Float16> c, Ahead next) {
  multiply_panels(m, n, k, a, b, c, next, false);
}
void multiply_bf16(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, BFloat16> c, Ahead next) {
  multiply_pairs(m, n, k, a, b, c, next);
}
void multiply_bf16_to_f32(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, float> c, Ahead next) {
  multiply_pairs(m, n, k, a, b, c, next);
}
void columns_f32(i64 m, i64 n, i64 k, Packed<float> a, const float* columns, const i32* offsets, float* sums, bool add) {
  columns_panels(m, n, k, a, columns, offsets, sums, add);
}
void columns_f64(i64 m, i64 n, i64 k, Packed<double> a, const double* columns, const i32* offsets, double* sums, bool add) {
  columns_panels(m, n, k, a, columns, offsets, sums, add);
}
void lines_f32(i64 m, i64 n, Lined<float> a, Packed<float> b, float* sums, i64 row_stride, bool add) {
  lines_panels(m, n, a, b, sums, row_stride, add);
}
void lines_f64(i64 m, i64 n, Lined<double> a, Packed<double> b, double* sums, i64 row_stride, bool add) {
  lines_panels(m, n, a, b, sums, row_stride, add);
}
void dots_f32(i64 m, i64 n, const Lined<float>& a, const float* columns, i64 stride, float* sums) { dots(m, n, a, columns, stride, sums); }
void dots_f64(i64 m, i64 n, const Lined<double>& a, const double* columns, i64 stride, double* sums) {
  dots(m, n, a, columns, stride, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels::gemm {
namespace {

std::atomic<Pairs> pinned_for_test{Pairs::best};

}  // namespace

std::span<const Pairs> available_pairs() {
  static const std::vector<Pairs> all = [] {
    std::vector<Pairs> found{Pairs::widened};
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) return found;
    if (__builtin_cpu_supports("avx512bf16")) found.push_back(Pairs::vectors);
    if (tiles::available()) found.push_back(Pairs::tiles);
    return found;
  }();
  return all;
}

Pairs pairs_by() {
  const Pairs pinned = pinned_for_test.load(std::memory_order_relaxed);
  return pinned == Pairs::best ? available_pairs().back() : pinned;
}

void pin_pairs_for_test(Pairs pairs) {
  require(pairs == Pairs::best || std::ranges::count(available_pairs(), pairs) > 0,
          "[gemm] expected a way to multiply bf16 pairs that this processor supports");
  pinned_for_test = pairs;
}

HWY_EXPORT(pairs_of_target);
HWY_EXPORT(pack_f32);
HWY_EXPORT(pack_f64);
HWY_EXPORT(pack_bf16);
HWY_EXPORT(pack_widened);
HWY_EXPORT(pack_widened_f16);
HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
HWY_EXPORT(multiply_f32_to_bf16);
HWY_EXPORT(multiply_f32_to_f16);
HWY_EXPORT(multiply_bf16);
HWY_EXPORT(multiply_bf16_to_f32);
HWY_EXPORT(columns_f32);
HWY_EXPORT(columns_f64);
HWY_EXPORT(lines_f32);
HWY_EXPORT(lines_f64);
HWY_EXPORT(dots_f32);
HWY_EXPORT(dots_f64);

Pairs pairs_in_use() { return HWY_DYNAMIC_DISPATCH(pairs_of_target)(); }

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
void pack(Side side, Operand<Float16> from, i64 outer, i64 k, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_widened_f16)(side, from, outer, k, to);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, float> c, Ahead next) {
  HWY_DYNAMIC_DISPATCH(multiply_f32)(m, n, k, a, b, c, next);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<double> a, Packed<double> b, Output<double, double> c, Ahead next) {
  HWY_DYNAMIC_DISPATCH(multiply_f64)(m, n, k, a, b, c, next);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, BFloat16> c, Ahead next) {
  HWY_DYNAMIC_DISPATCH(multiply_f32_to_bf16)(m, n, k, a, b, c, next);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float, Float16> c, Ahead next) {
  HWY_DYNAMIC_DISPATCH(multiply_f32_to_f16)(m, n, k, a, b, c, next);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, BFloat16> c, Ahead next) {
  HWY_DYNAMIC_DISPATCH(multiply_bf16)(m, n, k, a, b, c, next);
}
template <>
void multiply(i64 m, i64 n, i64 k, Packed<BFloat16> a, Packed<BFloat16> b, Output<BFloat16, float> c, Ahead next) {
  HWY_DYNAMIC_DISPATCH(multiply_bf16_to_f32)(m, n, k, a, b, c, next);
}
template <>
void multiply_columns(i64 m, i64 n, i64 k, Packed<float> a, const float* columns, const i32* offsets, float* sums, bool add) {
  HWY_DYNAMIC_DISPATCH(columns_f32)(m, n, k, a, columns, offsets, sums, add);
}
template <>
void multiply_columns(i64 m, i64 n, i64 k, Packed<double> a, const double* columns, const i32* offsets, double* sums, bool add) {
  HWY_DYNAMIC_DISPATCH(columns_f64)(m, n, k, a, columns, offsets, sums, add);
}
template <>
void multiply_lines(i64 m, i64 n, Lined<float> a, Packed<float> b, float* sums, i64 row_stride, bool add) {
  HWY_DYNAMIC_DISPATCH(lines_f32)(m, n, a, b, sums, row_stride, add);
}
template <>
void multiply_lines(i64 m, i64 n, Lined<double> a, Packed<double> b, double* sums, i64 row_stride, bool add) {
  HWY_DYNAMIC_DISPATCH(lines_f64)(m, n, a, b, sums, row_stride, add);
}
template <>
void add_dots(i64 m, i64 n, Lined<float> a, const float* columns, i64 stride, float* sums) {
  HWY_DYNAMIC_DISPATCH(dots_f32)(m, n, a, columns, stride, sums);
}
template <>
void add_dots(i64 m, i64 n, Lined<double> a, const double* columns, i64 stride, double* sums) {
  HWY_DYNAMIC_DISPATCH(dots_f64)(m, n, a, columns, stride, sums);
}

}  // namespace spillway::kernels::gemm
#endif
