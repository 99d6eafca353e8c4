#include "kernels/cross_entropy.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"
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

template <class T>
HWY_ATTR T log_sum_exp(const T* x, i64 n) {
  const T top = max_row(x, n);
  // Lanes that pad the last vector must add nothing.
  return top + std::log(sum_row(x, n, -std::numeric_limits<T>::infinity(), ExpMinus<T>{top}));
}

template <class T>
HWY_ATTR void gradient_row(const T* x, i64 n, T lse, T factor, T* dx) {
  map(x, dx, n, ScaledExpMinus<T>{lse, factor});
}

float log_sum_exp_f32(const float* x, i64 n) { return log_sum_exp(x, n); }
double log_sum_exp_f64(const double* x, i64 n) { return log_sum_exp(x, n); }
void gradient_row_f32(const float* x, i64 n, float lse, float factor, float* dx) { gradient_row(x, n, lse, factor, dx); }
void gradient_row_f64(const double* x, i64 n, double lse, double factor, double* dx) { gradient_row(x, n, lse, factor, dx); }

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {

HWY_EXPORT(log_sum_exp_f32);
HWY_EXPORT(log_sum_exp_f64);
HWY_EXPORT(gradient_row_f32);
HWY_EXPORT(gradient_row_f64);

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

void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& lse, const Tensor& loss) {
  check(logits, targets);
  if (logits.device().is_meta()) return;
  for_dtype("cross_entropy", logits.dtype(), [&]<class T>(T) {
    const i64 columns = logits.size(1);
    const T* x = logits.data<T>();
    const i32* target = targets.data<i32>();
    T *lses = lse.data<T>(), *losses = loss.data<T>();
    Stream::current().for_ranges(logits.size(0), grain(columns), [=](i64 begin, i64 end) {
      for (i64 row = begin; row < end; ++row) {
        check_target(target[row], row, columns);
        if constexpr (sizeof(T) == 4) lses[row] = HWY_DYNAMIC_DISPATCH(log_sum_exp_f32)(x + row * columns, columns);
        if constexpr (sizeof(T) == 8) lses[row] = HWY_DYNAMIC_DISPATCH(log_sum_exp_f64)(x + row * columns, columns);
        losses[row] = target[row] < 0 ? T(0) : lses[row] - x[row * columns + target[row]];
      }
    });
  });
}

void cross_entropy_gradient(const Tensor& logits, const Tensor& targets, const Tensor& lse, double factor, const Tensor& dlogits) {
  check(logits, targets);
  if (logits.device().is_meta()) return;
  for_dtype("cross_entropy_gradient", logits.dtype(), [&]<class T>(T) {
    const i64 columns = logits.size(1);
    const T *x = logits.data<T>(), *lses = lse.data<T>();
    const i32* target = targets.data<i32>();
    T* to = dlogits.data<T>();
    const T f = static_cast<T>(factor);
    Stream::current().for_ranges(logits.size(0), grain(columns), [=](i64 begin, i64 end) {
      for (i64 row = begin; row < end; ++row) {
        T* out = to + row * columns;
        if (target[row] < 0) {
          std::fill(out, out + columns, T(0));
          continue;
        }
        if constexpr (sizeof(T) == 4) HWY_DYNAMIC_DISPATCH(gradient_row_f32)(x + row * columns, columns, lses[row], f, out);
        if constexpr (sizeof(T) == 8) HWY_DYNAMIC_DISPATCH(gradient_row_f64)(x + row * columns, columns, lses[row], f, out);
        out[target[row]] -= f;
      }
    });
  });
}

void sum_in_order(const Tensor& x, const Tensor& total, bool add) {
  require(total.elems() == 1 && total.dtype() == DType::f64 && x.is_contiguous(), "[sum_in_order] expected a contiguous view and one f64");
  if (total.device().is_meta()) return;
  for_dtype("sum_in_order", x.dtype(), [&]<class T>(T) {
    double sum = add ? *total.data<double>() : 0;
    for (const T value : x.span<T>()) sum += static_cast<double>(value);
    *total.data<double>() = sum;
  });
}

i64 counted_targets(const Tensor& targets) {
  const auto all = targets.span<i32>();
  return std::count_if(all.begin(), all.end(), [](i32 target) { return target >= 0; });
}

}  // namespace spillway::kernels
#endif
