#include "kernels/gemm.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Registers: kRows x kVectors sums, kVectors of B and one of A.
constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int kVectors = 3;

template <class T>
constexpr i64 panel_extent(Side side) {
  return side == Side::a ? kRows : kVectors * static_cast<i64>(HWY_LANES(T));
}

// Sixteen elements at a time where k is contiguous: 4x4 transposes in 128-bit lanes; only the rest goes element by element.
HWY_ATTR void transpose_block(const float* from, i64 outer_stride, float* to, i64 panel) {
  const hn::Full128<float> d;
  const hn::Full128<double> dd;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + outer_stride);
  const auto r2 = hn::LoadU(d, from + 2 * outer_stride), r3 = hn::LoadU(d, from + 3 * outer_stride);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1)), high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3)), high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, to + panel);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, to + 2 * panel);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, to + 3 * panel);
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

template <class T>
HWY_ATTR void pack_transposed(Operand<T> from, i64 outer, i64 k, i64 panel, T* to) {
  const i64 whole = outer / 4 * 4, whole_k = k / 4 * 4;
  for (i64 p = 0; p < whole_k; p += 4) {
    for (i64 i = 0; i < whole; i += 4) transpose_block(from.data + i * from.outer_stride + p, from.outer_stride, to + p * panel + i, panel);
    for (i64 i = whole; i < outer; ++i) {
      for (i64 q = p; q < p + 4; ++q) to[q * panel + i] = from.data[i * from.outer_stride + q];
    }
  }
  for (i64 p = whole_k; p < k; ++p) {
    for (i64 i = 0; i < outer; ++i) to[p * panel + i] = from.data[i * from.outer_stride + p];
  }
}

// Rows contiguous in memory: each is read once from end to end and dealt to the panels.
template <Side side, class T>
HWY_ATTR void pack_contiguous(Operand<T> from, i64 outer, i64 k, T* to) {
  constexpr i64 panel = panel_extent<T>(side);
  const hn::CappedTag<T, static_cast<size_t>(std::min<i64>(panel, HWY_LANES(T)))> d;
  const i64 lanes = static_cast<i64>(hn::Lanes(d)), whole = outer / panel * panel;
  for (i64 p = 0; p < k; ++p) {
    const T* source = from.data + p * from.k_stride;
    for (i64 i = 0; i < whole; i += panel) {
      for (i64 j = 0; j < panel; j += lanes) hn::StoreU(hn::LoadU(d, source + i + j), d, to + i * k + p * panel + j);
    }
    for (i64 i = whole; i < outer; ++i) to[whole * k + p * panel + i - whole] = source[i];
  }
}

// Panel after panel: to[i / panel][p][i % panel] = from(i, p); what is missing of the last panel is zero.
template <Side side, class T>
HWY_ATTR void pack_panels(Operand<T> from, i64 outer, i64 k, T* to) {
  constexpr i64 panel = panel_extent<T>(side);
  if (const i64 used = outer % panel; used != 0) {
    T* last = to + (outer - used) * k;
    for (i64 p = 0; p < k; ++p) std::fill(last + p * panel + used, last + (p + 1) * panel, T(0));
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
      for (i64 r = 0; r < used; ++r) to[i * k + p * panel + r] = rows.data[r * rows.outer_stride + p * rows.k_stride];
    }
  }
}

template <class T>
HWY_ATTR void pack_side(Side side, Operand<T> from, i64 outer, i64 k, T* to) {
  side == Side::a ? pack_panels<Side::a>(from, outer, k, to) : pack_panels<Side::b>(from, outer, k, to);
}

// Writes one row of sums (rows x panel columns, in the buffer) into C.
template <class T>
void store_edge(const T* sums, i64 panel, i64 rows, i64 columns, Output<T> c, Store store) {
  for (i64 r = 0; r < rows; ++r) {
    for (i64 j = 0; j < columns; ++j) {
      T& out = c.data[r * c.row_stride + j];
      T value = store == Store::add ? out + sums[r * panel + j] : sums[r * panel + j];
      out = c.bias ? value + c.bias[j] : value;
    }
  }
}

template <int kUsed, class T>
HWY_ATTR void micro(i64 k, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, i64 rows, i64 columns, Output<T> c, Store store) {
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(T));
  hn::Vec<decltype(d)> sum[kRows][kUsed];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) sum[r][v] = hn::Zero(d);
  }
  // C is far away when k is short and the matrix large: ask for it before the sums are made.
  for (i64 r = 0; r < rows; ++r) {
    for (i64 j = 0; j < columns; j += 64 / static_cast<i64>(sizeof(T))) __builtin_prefetch(c.data + r * c.row_stride + j, 1);
  }
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
  if (rows == kRows && columns == kUsed * lanes) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) {
        T* out = c.data + r * c.row_stride + v * lanes;
        auto value = sum[r][v];
        if (store == Store::add) value = hn::Add(hn::LoadU(d, out), value);
        if (c.bias) value = hn::Add(value, hn::LoadU(d, c.bias + v * lanes));
        hn::StoreU(value, d, out);
      }
    }
    return;
  }
  HWY_ALIGN T edge[kRows * kUsed * lanes];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) hn::StoreU(sum[r][v], d, edge + (r * kUsed + v) * lanes);
  }
  store_edge(edge, kUsed * lanes, rows, columns, c, store);
}

// A strip's panels of A stay in the first-level cache or the second; a panel of B is used for all of them before the next one.
template <class T>
HWY_ATTR void multiply_panels(i64 m, i64 n, i64 k, Packed<T> a, Packed<T> b, Output<T> c, Store store) {
  constexpr i64 lanes = static_cast<i64>(HWY_LANES(T)), panel = kVectors * lanes;
  for (i64 j = 0; j < n; j += panel) {
    const i64 columns = std::min(panel, n - j);
    for (i64 i = 0; i < m; i += kRows) {
      const i64 rows = std::min<i64>(kRows, m - i);
      const Output<T> out{c.data + i * c.row_stride + j, c.row_stride, c.bias ? c.bias + j : nullptr};
      const T *rows_a = a.data + i * a.depth + a.first * kRows, *columns_b = b.data + j * b.depth + b.first * panel;
      if (columns > 2 * lanes) {
        micro<3>(k, rows_a, columns_b, rows, columns, out, store);
      } else if (columns > lanes) {
        micro<2>(k, rows_a, columns_b, rows, columns, out, store);
      } else {
        micro<1>(k, rows_a, columns_b, rows, columns, out, store);
      }
    }
  }
}

void pack_f32(Side side, Operand<float> from, i64 outer, i64 k, float* to) { pack_side(side, from, outer, k, to); }
void pack_f64(Side side, Operand<double> from, i64 outer, i64 k, double* to) { pack_side(side, from, outer, k, to); }
void multiply_f32(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float> c, Store store) {
  multiply_panels(m, n, k, a, b, c, store);
}
void multiply_f64(i64 m, i64 n, i64 k, Packed<double> a, Packed<double> b, Output<double> c, Store store) {
  multiply_panels(m, n, k, a, b, c, store);
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels::gemm {

HWY_EXPORT(pack_f32);
HWY_EXPORT(pack_f64);
HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);

template <>
void pack<float>(Side side, Operand<float> from, i64 outer, i64 k, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_f32)(side, from, outer, k, to);
}
template <>
void pack<double>(Side side, Operand<double> from, i64 outer, i64 k, double* to) {
  HWY_DYNAMIC_DISPATCH(pack_f64)(side, from, outer, k, to);
}
template <>
void multiply<float>(i64 m, i64 n, i64 k, Packed<float> a, Packed<float> b, Output<float> c, Store store) {
  HWY_DYNAMIC_DISPATCH(multiply_f32)(m, n, k, a, b, c, store);
}
template <>
void multiply<double>(i64 m, i64 n, i64 k, Packed<double> a, Packed<double> b, Output<double> c, Store store) {
  HWY_DYNAMIC_DISPATCH(multiply_f64)(m, n, k, a, b, c, store);
}

}  // namespace spillway::kernels::gemm
#endif
