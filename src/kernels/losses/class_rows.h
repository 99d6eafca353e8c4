// The formulas of class_loss.h for one row, shared by the CPU loops and the GPU kernels. Only class_loss_*.c* include this header.
#pragma once
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/losses/class_loss.h"

namespace spillway::kernels {

template <class T>
struct ClassRows {
  using W = Wide<T>;
  const T* x;
  const i32* targets;
  // class weights and softmax statistics; null `weights` are all 1; with null `statistics`, x holds log-probabilities
  const W *weights, *statistics;
  i64 columns;
  i32 ignored;
  W own, spread;  // own = 1 - smoothing; spread = smoothing / V

  constexpr bool counts(i64 row) const { return targets[row] >= 0 && targets[row] != ignored; }
  constexpr W weight(i64 c) const { return weights ? weights[c] : W(1); }
  constexpr W minus_log(i64 row, i64 c) const {
    const W value = widen(x[row * columns + c]);
    return statistics ? statistics[2 * row + 1] - (value - statistics[2 * row]) : -value;
  }
  /// Returns the gradient of x[row, c]. g is the gradient of the row's
  /// loss, and `all` is the factor of the softmax in the result.
  constexpr W gradient(i64 row, i64 c, W g, W all) const {
    W slope = -spread * weight(c);
    if (c == targets[row]) slope -= own * weight(c);
    if (statistics) slope += std::exp(-minus_log(row, c)) * all;
    return slope * g;
  }
};

template <class T>
ClassRows<T> class_rows(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics) {
  using W = Wide<T>;
  return {x.data<T>(),
          targets.data<i32>(),
          data_or_null<W>(weights),
          data_or_null<W>(statistics),
          x.size(1),
          form.ignored,
          static_cast<W>(1 - form.smoothing),
          static_cast<W>(form.smoothing / static_cast<double>(x.size(1)))};
}

}  // namespace spillway::kernels
