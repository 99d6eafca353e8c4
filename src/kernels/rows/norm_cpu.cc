#include "kernels/rows/norm.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows/norm_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/accumulate.h"
#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/vector_math_inl.h"

namespace spillway::kernels {
#ifndef SPILLWAY_NORM_ROWS
#define SPILLWAY_NORM_ROWS
// The arguments of the forward pass for one chunk of rows. A null `beta` selects RMS norm.
template <class T>
struct NormRows {
  const T *x, *gamma, *beta;
  T* y;
  Wide<T>* statistics;
  i64 rows, columns;
  Wide<T> eps, gain_offset;
};
template <class T>
struct NormGradientRows {
  const T *x, *gamma, *dy;  // gamma and dx: gamma is read only to compute dx; dx may be null
  const Wide<T>* statistics;
  T* dx;
  Wide<T>*gamma_sums, *beta_sums;  // the sums of this chunk, which are overwritten; null if they are not computed
  i64 rows, columns;
  bool centred;
  Wide<T> gain_offset;
};
#endif
}  // namespace spillway::kernels

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

// Computes y[i] = (x[i] - mean) * factor * (gamma[i] + offset) (+ beta[i]) for one row.
template <class S, class T = Wide<S>>
HWY_ATTR void normalise(const NormRows<S>& r, const S* x, T mean, T factor, S* y) {
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  const auto m = hn::Set(d, mean), f = hn::Set(d, factor), offset = hn::Set(d, r.gain_offset);
  for (i64 i = 0; i < r.columns; i += lanes) {
    const i64 used = std::min(lanes, r.columns - i);
    const bool whole = used == lanes;
    const auto value = whole ? load(d, x + i) : load_rest(d, x + i, used, T(0));
    const auto gain = hn::Add(whole ? load(d, r.gamma + i) : load_rest(d, r.gamma + i, used, T(0)), offset);
    auto out = hn::Mul(hn::Mul(hn::Sub(value, m), f), gain);
    if (r.beta) out = hn::Add(out, whole ? load(d, r.beta + i) : load_rest(d, r.beta + i, used, T(0)));
    whole ? store(d, out, y + i) : store_rest(d, out, y + i, used);
  }
}

template <class S>
HWY_ATTR void norm_rows(const NormRows<S>& r) {
  using T = Wide<S>;
  const T columns = static_cast<T>(r.columns);
  for (i64 row = 0; row < r.rows; ++row) {
    const S* x = r.x + row * r.columns;
    const T mean = r.beta ? sum_row(x, r.columns, T(0), Itself<T>()) / columns : T(0);
    const T variance = sum_row(x, r.columns, mean, SquareAround<T>{mean}) / columns;
    const T factor = T(1) / std::sqrt(variance + r.eps);
    normalise(r, x, mean, factor, r.y + row * r.columns);
    r.statistics[2 * row] = mean;
    r.statistics[2 * row + 1] = factor;
  }
}

// Computes dx of one row as factor * (g - mean(g) - h * mean(g h)), with h = (x
// - mean) * factor and g = dy * (gamma + offset). RMS norm leaves out mean(g).
template <class S>
HWY_ATTR void gradient_row(const NormGradientRows<S>& r, i64 row) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  const S *x = r.x + row * r.columns, *dy = r.dy + row * r.columns;
  S* dx = r.dx ? r.dx + row * r.columns : nullptr;
  const auto mean = hn::Set(d, r.statistics[2 * row]), factor = hn::Set(d, r.statistics[2 * row + 1]), offset = hn::Set(d, r.gain_offset);
  auto sum_g = hn::Zero(d), sum_gh = hn::Zero(d);
  for (i64 i = 0; i < r.columns; i += lanes) {
    const i64 used = std::min(lanes, r.columns - i);
    const bool whole = used == lanes;
    const auto h = hn::Mul(hn::Sub(whole ? load(d, x + i) : load_rest(d, x + i, used, T(0)), mean), factor);
    const auto gradient = whole ? load(d, dy + i) : load_rest(d, dy + i, used, T(0));
    if (dx) {
      const auto g = hn::Mul(gradient, hn::Add(whole ? load(d, r.gamma + i) : load_rest(d, r.gamma + i, used, T(0)), offset));
      sum_g = hn::Add(sum_g, g);
      sum_gh = hn::MulAdd(g, h, sum_gh);
    }
    // The sums are padded to whole vectors, so a vector may be written beyond the last column.
    if (r.gamma_sums) hn::StoreU(hn::MulAdd(gradient, h, hn::LoadU(d, r.gamma_sums + i)), d, r.gamma_sums + i);
    if (r.beta_sums) hn::StoreU(hn::Add(gradient, hn::LoadU(d, r.beta_sums + i)), d, r.beta_sums + i);
  }
  if (!dx) return;
  const T columns = static_cast<T>(r.columns);
  const auto mean_g = hn::Set(d, r.centred ? fold_sum<T>(sum_g) / columns : T(0)), mean_gh = hn::Set(d, fold_sum<T>(sum_gh) / columns);
  for (i64 i = 0; i < r.columns; i += lanes) {
    const i64 used = std::min(lanes, r.columns - i);
    const bool whole = used == lanes;
    const auto h = hn::Mul(hn::Sub(whole ? load(d, x + i) : load_rest(d, x + i, used, T(0)), mean), factor);
    const auto gradient = whole ? load(d, dy + i) : load_rest(d, dy + i, used, T(0));
    const auto g = hn::Mul(gradient, hn::Add(whole ? load(d, r.gamma + i) : load_rest(d, r.gamma + i, used, T(0)), offset));
    const auto out = hn::Mul(factor, hn::NegMulAdd(h, mean_gh, hn::Sub(g, mean_g)));
    whole ? store(d, out, dx + i) : store_rest(d, out, dx + i, used);
  }
}

template <class S>
HWY_ATTR void gradient_rows(const NormGradientRows<S>& r) {
  using T = Wide<S>;
  const i64 padded = norm_sums_stride(r.columns);
  if (r.gamma_sums) std::fill(r.gamma_sums, r.gamma_sums + padded, T(0));
  if (r.beta_sums) std::fill(r.beta_sums, r.beta_sums + padded, T(0));
  for (i64 row = 0; row < r.rows; ++row) gradient_row(r, row);
}

SPILLWAY_FOR_TYPES(norm_rows, norm_rows);
SPILLWAY_FOR_TYPES(gradient_rows, gradient_rows);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {

SPILLWAY_EXPORT_TYPES(norm_rows);
SPILLWAY_EXPORT_TYPES(gradient_rows);

i64 rows_of(const Tensor& x) { return x.elems() / x.size(-1); }

void check(const Tensor& x, const Tensor& gamma, const Tensor& y) {
  require(x.rank() >= 1 && x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape(),
          "[norm] expected a contiguous x and y of the same shape");
  require(gamma.rank() == 1 && gamma.size(0) == x.size(-1) && gamma.dtype() == x.dtype(),
          "[norm] expected a gamma with one element for each column, of x's dtype");
  require(y.dtype() == x.dtype(), "[norm] expected x and y of the same dtype");
}

// Computes sums[c], the sum over the chunks of partial[chunk][c], in order. `stride` is the distance between chunks in `partial`.
template <class T>
void add_chunks(const T* partial, i64 chunks, i64 columns, i64 stride, const Tensor& sums) {
  T* to = sums.data<T>();
  for (i64 c = 0; c < columns; ++c) to[c] = partial[c];
  for (i64 chunk = 1; chunk < chunks; ++chunk) {
    for (i64 c = 0; c < columns; ++c) to[c] += partial[chunk * stride + c];
  }
}

}  // namespace

void norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y, const Tensor& statistics,
          double gain_offset) {
  check(x, gamma, y);
  if (x.device().is_meta() || x.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, norm(x, gamma, beta, eps, y, statistics, gain_offset));
  for_dtype("norm", x.dtype(), [&]<class T>(T) {
    const i64 columns = x.size(-1);
    using W = Wide<T>;
    const NormRows<T> all{x.data<T>(), gamma.data<T>(),     data_or_null<T>(beta),      y.data<T>(), statistics.data<W>(), rows_of(x),
                          columns,     static_cast<W>(eps), static_cast<W>(gain_offset)};
    Stream::current().for_ranges(all.rows, norm_chunk_rows(all.rows), [&](i64 begin, i64 end) {
      NormRows<T> some = all;
      some.x += begin * columns;
      some.y += begin * columns;
      some.statistics += begin * 2;
      some.rows = end - begin;
      SPILLWAY_DISPATCH_TYPE(T, norm_rows, some);
    });
  });
}

i64 norm_gradient_workspace_bytes(i64 rows, i64 columns, DType dtype) {
  return 2 * norm_chunks(rows) * norm_sums_stride(columns) * size_of(wide_dtype(dtype));
}

void norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool centred, const Tensor& others,
                   const Tensor& dx, const Tensor& dgamma, const Tensor& dbeta, const Tensor& workspace, double gain_offset) {
  check(x, gamma, dy);
  if (others.defined()) check(others, gamma, dx);
  const i64 rows = rows_of(x), columns = x.size(-1), step = norm_chunk_rows(rows), chunks = norm_chunks(rows),
            stride = norm_sums_stride(columns);
  require(rows > 0, "[norm] expected at least one row");
  require(workspace.bytes() >= norm_gradient_workspace_bytes(rows, columns, x.dtype()),
          "[norm] expected a workspace of at least norm_gradient_workspace_bytes()");
  if (x.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(x, norm_gradient(x, gamma, statistics, dy, centred, others, dx, dgamma, dbeta, workspace, gain_offset));
  for_dtype("norm_gradient", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    W *gamma_sums = reinterpret_cast<W*>(workspace.raw()), *beta_sums = gamma_sums + chunks * stride;
    const NormGradientRows<T> all{x.data<T>(),
                                  dx.defined() ? gamma.data<T>() : nullptr,
                                  dy.data<T>(),
                                  statistics.data<W>(),
                                  data_or_null<T>(dx),
                                  dgamma.defined() ? gamma_sums : nullptr,
                                  dbeta.defined() ? beta_sums : nullptr,
                                  rows,
                                  columns,
                                  centred,
                                  static_cast<W>(gain_offset)};
    const Stream& stream = Stream::current();
    stream.run(chunks, [&](i64 chunk, int) {
      NormGradientRows<T> some = all;
      const i64 begin = chunk * step;
      some.rows = std::min(step, rows - begin);
      some.x += begin * columns;
      some.dy += begin * columns;
      some.statistics += begin * 2;
      if (some.dx) some.dx += begin * columns;
      if (some.gamma_sums) some.gamma_sums += chunk * stride;
      if (some.beta_sums) some.beta_sums += chunk * stride;
      SPILLWAY_DISPATCH_TYPE(T, gradient_rows, some);
    });
    if (dgamma.defined()) add_chunks(gamma_sums, chunks, columns, stride, dgamma);
    if (dbeta.defined()) add_chunks(beta_sums, chunks, columns, stride, dbeta);
  });
  if (others.defined()) add(others, dx, dx);
}

}  // namespace spillway::kernels
#endif
