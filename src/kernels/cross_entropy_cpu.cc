#include "kernels/cross_entropy.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
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
  T shift, factor;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::Mul(exp(d, hn::Sub(x, hn::Set(d, shift))), hn::Set(d, factor));
  }
};

// statistics = the largest and the sum of exp(x - largest). Lanes that pad the last vector add nothing.
template <class S>
HWY_ATTR void row_statistics(const S* x, i64 n, Wide<S>* statistics) {
  using T = Wide<S>;
  statistics[0] = max_row(x, n);
  statistics[1] = sum_row(x, n, -std::numeric_limits<T>::infinity(), ExpMinus<T>{statistics[0]});
}

// dx may be of a narrower type in the place of x: nothing is written before it is read, and the element of the target is read first.
template <class S, class Out>
HWY_ATTR void gradient_row(const S* x, i64 n, i64 target, Wide<S> largest, Wide<S> factor, Wide<S> sum, Out* dx) {
  const ScaledExpMinus<Wide<S>> share{largest, factor / sum};
  Wide<S> own;
  map(x + target, &own, 1, share);
  map(x, dx, n, share);
  dx[target] = narrow<Out>(own - factor);
}

void row_statistics_f32(const float* x, i64 n, float* statistics) { row_statistics(x, n, statistics); }
void row_statistics_bf16(const BFloat16* x, i64 n, float* statistics) { row_statistics(x, n, statistics); }
void row_statistics_f16(const Float16* x, i64 n, float* statistics) { row_statistics(x, n, statistics); }
void row_statistics_f64(const double* x, i64 n, double* statistics) { row_statistics(x, n, statistics); }
void gradient_row_f32(const float* x, i64 n, i64 target, float largest, float factor, float sum, float* dx) {
  gradient_row(x, n, target, largest, factor, sum, dx);
}
void gradient_row_f64(const double* x, i64 n, i64 target, double largest, double factor, double sum, double* dx) {
  gradient_row(x, n, target, largest, factor, sum, dx);
}
void gradient_row_bf16(const BFloat16* x, i64 n, i64 target, float largest, float factor, float sum, BFloat16* dx) {
  gradient_row(x, n, target, largest, factor, sum, dx);
}
void gradient_row_f16(const Float16* x, i64 n, i64 target, float largest, float factor, float sum, Float16* dx) {
  gradient_row(x, n, target, largest, factor, sum, dx);
}
void gradient_row_f32_bf16(const float* x, i64 n, i64 target, float largest, float factor, float sum, BFloat16* dx) {
  gradient_row(x, n, target, largest, factor, sum, dx);
}
void gradient_row_f32_f16(const float* x, i64 n, i64 target, float largest, float factor, float sum, Float16* dx) {
  gradient_row(x, n, target, largest, factor, sum, dx);
}

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

// Rows of one task: about 16 Ki elements.
i64 grain(i64 columns) { return std::max<i64>(1, (1 << 14) / columns); }

void check(const Tensor& logits, const Tensor& targets) {
  require(logits.rank() == 2 && logits.is_contiguous(), "[cross_entropy] expected contiguous logits of shape [N, V]");
  if (targets.elems() != logits.size(0) || !targets.is_contiguous() || targets.dtype() != DType::int32) {
    throw Error(ErrorCode::bug, "[cross_entropy] expected one int32 target a row of " + to_string(logits.shape()) + ", got " +
                                    to_string(targets.shape()) + " of " + std::string(to_string(targets.dtype())));
  }
}

void check_target(i32 target, i64 row, i64 columns) {
  if (target < columns) return;
  throw Error(ErrorCode::data, "[cross_entropy] target " + std::to_string(target) + " of row " + std::to_string(row) +
                                   " is not below the vocabulary size " + std::to_string(columns) + ": wrong tokenizer or model?");
}

}  // namespace

void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& statistics, const Tensor& loss) {
  check(logits, targets);
  if (logits.device().is_meta()) return;
  if constexpr (kHasCuda) {
    if (logits.device().is_cuda()) return cuda::cross_entropy(logits, targets, statistics, loss);
  }
  for_dtype("cross_entropy", logits.dtype(), [&]<class T>(T) {
    const i64 columns = logits.size(1);
    const T* x = logits.data<T>();
    const i32* target = targets.data<i32>();
    using W = Wide<T>;
    W *kept = statistics.data<W>(), *losses = loss.data<W>();
    Stream::current().for_ranges(logits.size(0), grain(columns), [=](i64 begin, i64 end) {
      for (i64 row = begin; row < end; ++row) {
        check_target(target[row], row, columns);
        SPILLWAY_DISPATCH_TYPE(T, row_statistics, x + row * columns, columns, kept + 2 * row);
        losses[row] = target[row] < 0 ? W(0) : std::log(kept[2 * row + 1]) - (widen(x[row * columns + target[row]]) - kept[2 * row]);
      }
    });
  });
}

namespace {

template <class T, class Out>
void gradient(const Tensor& logits, const Tensor& targets, const Tensor& statistics, double factor, const Tensor& dlogits) {
  using W = Wide<T>;
  const i64 columns = logits.size(1), stride = dlogits.stride(0);
  const T* all = logits.data<T>();
  const W* kept = statistics.data<W>();
  const i32* target = targets.data<i32>();
  Out* to = dlogits.data<Out>();
  const W f = static_cast<W>(factor);
  Stream::current().for_ranges(logits.size(0), grain(columns), [=](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const T* x = all + row * columns;
      Out* out = to + row * stride;
      if (target[row] < 0) {
        std::fill(out, out + columns, Out{});
        continue;
      }
      const W largest = kept[2 * row], sum = kept[2 * row + 1];
      if constexpr (std::is_same_v<T, Out>) {
        SPILLWAY_DISPATCH_TYPE(T, gradient_row, x, columns, target[row], largest, f, sum, out);
      } else if constexpr (std::is_same_v<Out, BFloat16>) {
        HWY_DYNAMIC_DISPATCH(gradient_row_f32_bf16)(x, columns, target[row], largest, f, sum, out);
      } else {
        HWY_DYNAMIC_DISPATCH(gradient_row_f32_f16)(x, columns, target[row], largest, f, sum, out);
      }
    }
  });
}

}  // namespace

void cross_entropy_gradient(const Tensor& logits, const Tensor& targets, const Tensor& statistics, double factor, const Tensor& dlogits) {
  check(logits, targets);
  require(dlogits.shape() == logits.shape() && (logits.size(1) == 1 || dlogits.stride(1) == 1),
          "[cross_entropy] expected a gradient of the logits' shape, its rows contiguous");
  if (logits.device().is_meta()) return;
  if constexpr (kHasCuda) {
    if (logits.device().is_cuda()) return cuda::cross_entropy_gradient(logits, targets, statistics, factor, dlogits);
  }
  if (logits.dtype() == DType::f32 && dlogits.dtype() == DType::bf16) {
    return gradient<float, BFloat16>(logits, targets, statistics, factor, dlogits);
  }
  if (logits.dtype() == DType::f32 && dlogits.dtype() == DType::f16) {
    return gradient<float, Float16>(logits, targets, statistics, factor, dlogits);
  }
  for_dtype("cross_entropy_gradient", logits.dtype(), [&]<class T>(T) { gradient<T, T>(logits, targets, statistics, factor, dlogits); });
}

void sum_in_order(const Tensor& x, double factor, const Tensor& total) {
  require(total.elems() == 1 && total.dtype() == DType::f64 && x.is_contiguous(), "[sum_in_order] expected a contiguous view and one f64");
  if (total.device().is_meta()) return;
  if constexpr (kHasCuda) {
    if (total.device().is_cuda()) return cuda::sum_in_order(x, factor, total);
  }
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
  if (counted == 0) throw Error(ErrorCode::data, "[cross_entropy] no target is counted: the mean of no losses is undefined");
  return counted;
}

}  // namespace spillway::kernels
#endif
