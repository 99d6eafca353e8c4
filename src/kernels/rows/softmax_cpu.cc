#include "kernels/rows/softmax.h"

#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/lanes_cpu.h"

namespace spillway::kernels {
namespace {

void check_lanes(const Axis& axis, const Tensor& x, const Tensor& kept) {
  require_axis(axis, x);
  require(kept.is_contiguous() && kept.elems() == 2 * axis.lanes() && kept.dtype() == wide_dtype(x.dtype()),
          "[softmax] expected softmax statistics of two numbers for each lane, in f32 (f64 if x is f64)");
}

}  // namespace

void softmax_statistics(const Tensor& x, const Axis& axis, const Tensor& kept) {
  check_lanes(axis, x, kept);
  if (x.device().is_meta() || axis.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, softmax_statistics(x, axis, kept));
  for_dtype("softmax", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const T* from = x.data<T>();
    W* to = kept.data<W>();
    for_lanes(axis, [=](i64 lane, i64 first) {
      W largest = widen(from[first]);
      for (i64 j = 1; j < axis.n; ++j) {
        const W value = widen(from[first + j * axis.inner]);
        largest = value > largest || value != value ? value : largest;
      }
      double sum = 0;
      for (i64 j = 0; j < axis.n; ++j) sum += static_cast<double>(std::exp(widen(from[first + j * axis.inner]) - largest));
      W* at = to + kept_of_lane(axis, lane);
      at[0] = largest, at[axis.inner] = static_cast<W>(std::log(sum));
    });
  });
}

void softmax(Softmax form, const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& y) {
  check_lanes(axis, x, kept);
  require_axis(axis, y);
  if (x.device().is_meta() || axis.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, softmax(form, x, axis, kept, y));
  for_dtype("softmax", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const T* from = x.data<T>();
    const W* lanes = kept.data<W>();
    T* to = y.data<T>();
    for_lanes(axis, [=](i64 lane, i64 first) {
      const SoftmaxLane<W> of(lanes, axis, lane);
      for (i64 j = 0; j < axis.n; ++j) {
        const W share = of.log_share(widen(from[first + j * axis.inner]));
        to[first + j * axis.inner] = narrow<T>(form == Softmax::plain ? std::exp(share) : share);
      }
    });
  });
}

void softmax_gradient(Softmax form, const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  check_lanes(axis, x, kept);
  require_axis(axis, dy);
  require_axis(axis, dx);
  if (x.device().is_meta() || axis.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, softmax_gradient(form, x, axis, kept, dy, dx));
  for_dtype("softmax_gradient", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const T *from = x.data<T>(), *gradient = dy.data<T>();
    const W* lanes = kept.data<W>();
    T* to = dx.data<T>();
    for_lanes(axis, [=](i64 lane, i64 first) {
      const SoftmaxLane<W> of(lanes, axis, lane);
      double total = 0;
      for (i64 j = 0; j < axis.n; ++j) {
        const i64 at = first + j * axis.inner;
        const W share = form == Softmax::plain ? std::exp(of.log_share(widen(from[at]))) : W(1);
        total += static_cast<double>(share) * static_cast<double>(widen(gradient[at]));
      }
      const W sum = static_cast<W>(total);
      for (i64 j = 0; j < axis.n; ++j) {
        const i64 at = first + j * axis.inner;
        const W share = std::exp(of.log_share(widen(from[at]))), d = widen(gradient[at]);
        to[at] = narrow<T>(form == Softmax::plain ? share * (d - sum) : d - share * sum);
      }
    });
  });
}

void log_sum_exp(const Tensor& kept, const Axis& axis, const Tensor& y) {
  require(kept.elems() == 2 * axis.lanes() && y.elems() == axis.lanes() && y.is_contiguous(),
          "[log_sum_exp] expected two statistics and one contiguous result for each lane");
  if (y.device().is_meta() || axis.lanes() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(y, log_sum_exp(kept, axis, y));
  for_dtype("log_sum_exp", y.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const W* lanes = kept.data<W>();
    T* to = y.data<T>();
    for_lanes({axis.outer, 1, axis.inner}, [=](i64 lane, i64) {
      const SoftmaxLane<W> of(lanes, axis, lane);
      // If all elements of a lane (a line of elements along the axis) are -inf, or one is inf, the sum of exponentials is NaN. The result
      // is then the largest element, which is the limit of the log-sum-exp.
      to[lane] = narrow<T>(std::isinf(of.largest) ? of.largest : of.largest + of.log_sum);
    });
  });
}

void log_sum_exp_gradient(const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  check_lanes(axis, x, kept);
  require(dy.elems() == axis.lanes() && dy.is_contiguous(), "[log_sum_exp] expected a contiguous gradient with one element for each lane");
  require_axis(axis, dx);
  if (x.device().is_meta() || axis.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, log_sum_exp_gradient(x, axis, kept, dy, dx));
  for_dtype("log_sum_exp_gradient", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const T *from = x.data<T>(), *gradient = dy.data<T>();
    const W* lanes = kept.data<W>();
    T* to = dx.data<T>();
    for_lanes(axis, [=](i64 lane, i64 first) {
      const SoftmaxLane<W> of(lanes, axis, lane);
      const W d = widen(gradient[lane]);
      for (i64 j = 0; j < axis.n; ++j) {
        const i64 at = first + j * axis.inner;
        to[at] = narrow<T>(d * std::exp(of.log_share(widen(from[at]))));
      }
    });
  });
}

}  // namespace spillway::kernels
