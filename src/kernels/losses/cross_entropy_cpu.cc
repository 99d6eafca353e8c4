#include "kernels/losses/cross_entropy.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/losses/cross_entropy_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/vector_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

template <class T>
struct ExpMinus {
  T shift;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return exp(d, hn::Sub(x, hn::Set(d, shift)));
  }
};
template <class T>
struct ScaledExpMinus {
  T shift, factor, slope;  // `slope` is 1 / cap, or 0 if there is no soft cap
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V share = hn::Mul(exp(d, hn::Sub(x, hn::Set(d, shift))), hn::Set(d, factor));
    if (slope == 0) return share;
    const V capped = hn::Mul(x, hn::Set(d, slope));
    return hn::Mul(share, hn::NegMulAdd(capped, capped, hn::Set(d, 1)));
  }
};

// Writes two statistics of a row: the largest element of x, and the sum of exp(x
// - largest). Vector elements beyond the row's end are -inf and add nothing.
template <class S>
HWY_ATTR void row_statistics(const S* x, i64 n, Wide<S>* statistics) {
  using T = Wide<S>;
  statistics[0] = max_row(x, n);
  statistics[1] = sum_row(x, n, -std::numeric_limits<T>::infinity(), ExpMinus<T>{statistics[0]});
}

// Writes the gradient of one row. dx may be of a narrower type and overwrite x: the target's element is read first, and every other element
// is read before something is written to its memory. A negative `target` means that the target is not among these columns.
template <class S, class Out = S>
HWY_ATTR void gradient_row(const S* x, i64 n, i64 target, Wide<S> largest, Wide<S> factor, Wide<S> sum, Wide<S> slope, Out* dx) {
  const ScaledExpMinus<Wide<S>> share{largest, factor / sum, slope};
  Wide<S> own{}, once = factor;
  if (target >= 0) {
    map(x + target, &own, 1, share);
    if (slope != 0) once *= 1 - widen(x[target]) * slope * (widen(x[target]) * slope);
  }
  map(x, dx, n, share);
  if (target >= 0) dx[target] = narrow<Out>(own - once);
}

SPILLWAY_FOR_TYPES(row_statistics, row_statistics);
SPILLWAY_FOR_TYPES(gradient_row, gradient_row);
constexpr auto& gradient_row_f32_bf16 = gradient_row<float, BFloat16>;
constexpr auto& gradient_row_f32_f16 = gradient_row<float, Float16>;

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {

SPILLWAY_EXPORT_TYPES(row_statistics);
SPILLWAY_EXPORT_TYPES(gradient_row);
HWY_EXPORT(gradient_row_f32_bf16);
HWY_EXPORT(gradient_row_f32_f16);

// Returns how many rows a task processes: about 16 Ki elements.
i64 grain(i64 columns) { return std::max<i64>(1, (1 << 14) / columns); }

void check(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets) {
  require(logits.rank() == 2 && (logits.size(1) == 1 || logits.stride(1) == 1) && 0 <= first && first + logits.size(1) <= vocabulary,
          "[cross_entropy] expected logits [N, V], or some of their columns, whose rows are contiguous");
  if (targets.elems() != logits.size(0) || !targets.is_contiguous() || targets.dtype() != DType::int32) {
    throw Error(ErrorCode::bug, "[cross_entropy] expected one int32 target for each row of " + to_string(logits.shape()) + ", got " +
                                    to_string(targets.shape()) + " of " + std::string(to_string(targets.dtype())));
  }
}

void check_target(i32 target, i64 row, i64 columns) {
  if (target < columns) return;
  throw Error(ErrorCode::data, "[cross_entropy] target " + std::to_string(target) + " of row " + std::to_string(row) +
                                   " (rows are counted from 0) is not below the vocabulary size " + std::to_string(columns) +
                                   ": check that the tokenizer belongs to the model");
}

// Rescales the sum of exponentials `sum` from exp(x - largest) to exp(x - top).
template <class W>
W moved_to(W top, W largest, W sum) {
  if (largest == top) return sum;
  return largest == -std::numeric_limits<W>::infinity() ? W(0) : sum * std::exp(largest - top);
}

template <class W>
void join(const W* part, W* statistics) {
  const W top = std::max(part[0], statistics[0]);
  statistics[1] = moved_to(top, statistics[0], statistics[1]) + moved_to(top, part[0], part[1]);
  statistics[0] = top;
}

// Widths, in columns, of the pieces of logits on a GPU. A piece has at least kFewestColumns columns, in multiples of kTile. Columns beyond
// a multiple of kAligned are a separate piece. Each piece reads and writes the whole gradient of the head's input once, so fewer and wider
// pieces are faster.
constexpr i64 kAligned = 64, kFewestColumns = 4096, kTile = 256;

}  // namespace

LogitsCut logits_cut(i64 rows, i64 vocabulary, DType wide, i64 piece_bytes) {
  if (!Stream::current().device.works_as_cuda()) return {std::clamp<i64>(piece_bytes / (vocabulary * size_of(wide)), 1, rows), vocabulary};
  if (vocabulary < kAligned) return {rows, vocabulary};
  const i64 most = vocabulary / kAligned * kAligned, fit = std::max(kFewestColumns, piece_bytes / (rows * size_of(wide)));
  return {rows, fit >= most ? most : fit / kTile * kTile};
}

i64 logits_pitch(i64 columns) { return Stream::current().device.works_as_cuda() ? round_up(columns, kAligned) : columns; }

void cross_entropy_part(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                        const Tensor& loss) {
  check(logits, first, vocabulary, targets);
  if (logits.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(logits, cross_entropy_part(logits, first, vocabulary, targets, statistics, loss));
  for_dtype("cross_entropy", logits.dtype(), [&]<class T>(T) {
    const i64 columns = logits.size(1), pitch = logits.stride(0);
    const T* x = logits.data<T>();
    const i32* target = targets.data<i32>();
    using W = Wide<T>;
    W *kept = statistics.data<W>(), *losses = loss.data<W>();
    Stream::current().for_ranges(logits.size(0), grain(columns), [=](i64 begin, i64 end) {
      for (i64 row = begin; row < end; ++row) {
        check_target(target[row], row, vocabulary);
        W part[2];
        SPILLWAY_DISPATCH_TYPE(T, row_statistics, x + row * pitch, columns, first == 0 ? kept + 2 * row : part);
        if (first > 0) join(part, kept + 2 * row);
        const i64 own = target[row] - first;
        if (0 <= own && own < columns) losses[row] = widen(x[row * pitch + own]);
        if (first + columns < vocabulary) continue;
        losses[row] = target[row] < 0 ? W(0) : std::log(kept[2 * row + 1]) - (losses[row] - kept[2 * row]);
      }
    });
  });
}

namespace {

template <class T, class Out>
void gradient(const Tensor& logits, i64 first, const Tensor& targets, const Tensor& statistics, double factor, const Tensor& dlogits,
              double cap) {
  using W = Wide<T>;
  const i64 columns = logits.size(1), pitch = logits.stride(0), stride = dlogits.stride(0), width = dlogits.size(1);
  const T* all = logits.data<T>();
  const W* kept = statistics.data<W>();
  const i32* target = targets.data<i32>();
  Out* to = dlogits.data<Out>();
  const W f = static_cast<W>(factor), slope = cap > 0 ? static_cast<W>(1 / cap) : W(0);
  Stream::current().for_ranges(logits.size(0), grain(columns), [=](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const T* x = all + row * pitch;
      Out* out = to + row * stride;
      if (target[row] < 0) {
        std::fill(out, out + width, Out{});
        continue;
      }
      const i64 in_part = target[row] - first, own = in_part < columns ? in_part : -1;
      const W largest = kept[2 * row], sum = kept[2 * row + 1];
      if constexpr (std::is_same_v<T, Out>) {
        SPILLWAY_DISPATCH_TYPE(T, gradient_row, x, columns, own, largest, f, sum, slope, out);
      } else if constexpr (std::is_same_v<Out, BFloat16>) {
        HWY_DYNAMIC_DISPATCH(gradient_row_f32_bf16)(x, columns, own, largest, f, sum, slope, out);
      } else {
        HWY_DYNAMIC_DISPATCH(gradient_row_f32_f16)(x, columns, own, largest, f, sum, slope, out);
      }
      std::fill(out + columns, out + width, Out{});
    }
  });
}

}  // namespace

void cross_entropy_part_gradient(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                                 double factor, const Tensor& dlogits, double cap) {
  check(logits, first, vocabulary, targets);
  require(dlogits.rank() == 2 && dlogits.size(0) == logits.size(0) && dlogits.size(1) >= logits.size(1) &&
              (dlogits.size(1) == 1 || dlogits.stride(1) == 1),
          "[cross_entropy] expected a gradient whose rows are contiguous, with as many rows as the logits and at least as many columns");
  if (logits.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(logits, cross_entropy_part_gradient(logits, first, vocabulary, targets, statistics, factor, dlogits, cap));
  if (logits.dtype() == DType::f32 && dlogits.dtype() == DType::bf16)
    return gradient<float, BFloat16>(logits, first, targets, statistics, factor, dlogits, cap);
  if (logits.dtype() == DType::f32 && dlogits.dtype() == DType::f16)
    return gradient<float, Float16>(logits, first, targets, statistics, factor, dlogits, cap);
  for_dtype("cross_entropy_gradient", logits.dtype(),
            [&]<class T>(T) { gradient<T, T>(logits, first, targets, statistics, factor, dlogits, cap); });
}

void sum_in_order(const Tensor& x, double factor, const Tensor& total) {
  require(total.elems() == 1 && total.dtype() == DType::f64 && x.is_contiguous(),
          "[sum_in_order] expected a contiguous x and a total of one f64");
  if (total.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(total, sum_in_order(x, factor, total));
  for_dtype("sum_in_order", x.dtype(), [&]<class T>(T) {
    double sum = 0;
    for (const T value : x.span<T>()) sum += static_cast<double>(widen(value));
    *total.data<double>() = sum * factor;
  });
}

i64 counted_targets(const Tensor& targets) {
  if (targets.device().is_meta()) return targets.elems();
  if (targets.device().is_cuda()) return counted_targets(to_host(targets));
  const auto all = targets.span<i32>();
  const i64 counted = std::count_if(all.begin(), all.end(), [](i32 target) { return target >= 0; });
  if (counted == 0)
    throw Error(ErrorCode::data,
                "[cross_entropy] expected a target that contributes to the loss, got none: the mean of zero losses is undefined");
  return counted;
}

}  // namespace spillway::kernels
#endif
