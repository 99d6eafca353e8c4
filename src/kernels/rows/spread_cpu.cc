#include "kernels/rows/spread.h"

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/lanes_cpu.h"

namespace spillway::kernels {
namespace {

void check_variance(const Tensor& x, const Axis& axis, const Tensor& mean, const Tensor& y) {
  require_axis(axis, x);
  require(mean.elems() == axis.lanes() && y.elems() == axis.lanes() && mean.is_contiguous() && y.is_contiguous(),
          "[variance] expected a contiguous mean and a contiguous variance with one number for each lane");
}

}  // namespace

void variance(const Tensor& x, const Axis& axis, double correction, const Tensor& mean, const Tensor& y) {
  check_variance(x, axis, mean, y);
  if (x.device().is_meta() || axis.lanes() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, variance(x, axis, correction, mean, y));
  for_dtype("variance", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    Wide<T>* means = mean.data<Wide<T>>();
    T* to = y.data<T>();
    for_lanes(axis, [=](i64 lane, i64 first) {
      double sum = 0, squares = 0;
      for (i64 j = 0; j < axis.n; ++j) sum += static_cast<double>(widen(from[first + j * axis.inner]));
      const double centre = sum / static_cast<double>(axis.n);
      for (i64 j = 0; j < axis.n; ++j) {
        const double d = static_cast<double>(widen(from[first + j * axis.inner])) - centre;
        squares += d * d;
      }
      means[lane] = static_cast<Wide<T>>(centre);
      to[lane] = narrow<T>(static_cast<Wide<T>>(squares / (static_cast<double>(axis.n) - correction)));
    });
  });
}

void variance_gradient(const Tensor& x, const Axis& axis, double correction, const Tensor& mean, const Tensor& dy, const Tensor& dx) {
  check_variance(x, axis, mean, dy);
  require_axis(axis, dx);
  if (x.device().is_meta() || axis.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, variance_gradient(x, axis, correction, mean, dy, dx));
  for_dtype("variance_gradient", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const T *from = x.data<T>(), *gradient = dy.data<T>();
    const W *means = mean.data<W>(), factor = static_cast<W>(2 / (static_cast<double>(axis.n) - correction));
    T* to = dx.data<T>();
    for_lanes(axis, [=](i64 lane, i64 first) {
      const W slope = widen(gradient[lane]) * factor;
      for (i64 j = 0; j < axis.n; ++j) {
        const i64 at = first + j * axis.inner;
        to[at] = narrow<T>((widen(from[at]) - means[lane]) * slope);
      }
    });
  });
}

void running_sum(const Tensor& x, const Axis& axis, bool backwards, const Tensor& y) {
  require_axis(axis, x);
  require_axis(axis, y);
  if (x.device().is_meta() || axis.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, running_sum(x, axis, backwards, y));
  for_dtype("running_sum", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    for_lanes(axis, [=](i64, i64 first) {
      double sum = 0;
      for (i64 i = 0; i < axis.n; ++i) {
        const i64 at = first + (backwards ? axis.n - 1 - i : i) * axis.inner;
        sum += static_cast<double>(widen(from[at]));
        to[at] = narrow<T>(static_cast<Wide<T>>(sum));
      }
    });
  });
}

}  // namespace spillway::kernels
