#include "kernels/rows/softmax.h"

#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/lanes_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// Returns the larger of two values, or NaN if one of them is NaN.
struct LargerOrNan {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

template <class T>
struct Statistics {
  using W = Wide<T>;
  const T* x;
  W* kept;
  template <class Rows>
  __device__ void lane(const Axis& axis, i64 lane, i64 first) const {
    W largest = -std::numeric_limits<W>::infinity();
    for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) largest = LargerOrNan()(widen(x[first + j * axis.inner]), largest);
    largest = Rows::fold(largest, LargerOrNan());
    double sum = 0;
    for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads)
      sum += static_cast<double>(std::exp(widen(x[first + j * axis.inner]) - largest));
    sum = Rows::fold(sum, Plus());
    if (Rows::rank() != 0) return;
    W* at = kept + kept_of_lane(axis, lane);
    at[0] = largest, at[axis.inner] = static_cast<W>(std::log(sum));
  }
};

template <class T>
struct Shares {
  using W = Wide<T>;
  Softmax form;
  const T* x;
  const W* kept;
  T* y;
  template <class Rows>
  __device__ void lane(const Axis& axis, i64 lane, i64 first) const {
    const SoftmaxLane<W> of(kept, axis, lane);
    for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) {
      const W share = of.log_share(widen(x[first + j * axis.inner]));
      y[first + j * axis.inner] = narrow<T>(form == Softmax::plain ? std::exp(share) : share);
    }
  }
};

template <class T>
struct Gradient {
  using W = Wide<T>;
  Softmax form;
  const T *x, *dy;
  const W* kept;
  T* dx;
  template <class Rows>
  __device__ void lane(const Axis& axis, i64 lane, i64 first) const {
    const SoftmaxLane<W> of(kept, axis, lane);
    double total = 0;
    for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) {
      const i64 at = first + j * axis.inner;
      const W share = form == Softmax::plain ? std::exp(of.log_share(widen(x[at]))) : W(1);
      total += static_cast<double>(share) * static_cast<double>(widen(dy[at]));
    }
    const W sum = static_cast<W>(Rows::fold(total, Plus()));
    for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) {
      const i64 at = first + j * axis.inner;
      const W share = std::exp(of.log_share(widen(x[at]))), d = widen(dy[at]);
      dx[at] = narrow<T>(form == Softmax::plain ? share * (d - sum) : d - share * sum);
    }
  }
};

template <class T>
struct LogSumExp {
  using W = Wide<T>;
  Axis axis;
  const W* kept;
  T* y;
  __device__ void operator()(i64 lane) const {
    const SoftmaxLane<W> of(kept, axis, lane);
    const bool infinite = std::abs(of.largest) == std::numeric_limits<W>::infinity();
    y[lane] = narrow<T>(infinite ? of.largest : of.largest + of.log_sum);
  }
};

template <class T>
struct LogSumExpGradient {
  using W = Wide<T>;
  const T *x, *dy;
  const W* kept;
  T* dx;
  template <class Rows>
  __device__ void lane(const Axis& axis, i64 lane, i64 first) const {
    const SoftmaxLane<W> of(kept, axis, lane);
    const W d = widen(dy[lane]);
    for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) {
      const i64 at = first + j * axis.inner;
      dx[at] = narrow<T>(d * std::exp(of.log_share(widen(x[at]))));
    }
  }
};

}  // namespace

void softmax_statistics(const Tensor& x, const Axis& axis, const Tensor& kept) {
  for_dtype("softmax", x.dtype(), [&]<class T>(T) {
    for_lanes_on_gpu("softmax_statistics", axis, Statistics<T>{x.data<T>(), kept.data<Wide<T>>()});
  });
}

void softmax(Softmax form, const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& y) {
  for_dtype("softmax", x.dtype(), [&]<class T>(T) {
    for_lanes_on_gpu("softmax", axis, Shares<T>{form, x.data<T>(), kept.data<Wide<T>>(), y.data<T>()});
  });
}

void softmax_gradient(Softmax form, const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  for_dtype("softmax_gradient", x.dtype(), [&]<class T>(T) {
    for_lanes_on_gpu("softmax_gradient", axis, Gradient<T>{form, x.data<T>(), dy.data<T>(), kept.data<Wide<T>>(), dx.data<T>()});
  });
}

void log_sum_exp(const Tensor& kept, const Axis& axis, const Tensor& y) {
  for_dtype("log_sum_exp", y.dtype(), [&]<class T>(T) {
    for_each_on_gpu("log_sum_exp", axis.lanes(), LogSumExp<T>{axis, kept.data<Wide<T>>(), y.data<T>()});
  });
}

void log_sum_exp_gradient(const Tensor& x, const Axis& axis, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  for_dtype("log_sum_exp_gradient", x.dtype(), [&]<class T>(T) {
    for_lanes_on_gpu("log_sum_exp_gradient", axis, LogSumExpGradient<T>{x.data<T>(), dy.data<T>(), kept.data<Wide<T>>(), dx.data<T>()});
  });
}

}  // namespace spillway::kernels::cuda
