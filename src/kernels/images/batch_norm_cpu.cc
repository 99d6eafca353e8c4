#include "kernels/images/batch_norm.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/images/batch_norm_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/vector_math_inl.h"

namespace spillway::kernels {
#ifndef SPILLWAY_BATCH_NORM_CHANNEL
#define SPILLWAY_BATCH_NORM_CHANNEL
// planes of at most kShortPlane elements are copied together into lines of kGathered elements
constexpr i64 kShortPlane = 32, kGathered = 1024;
// One channel of a batch: it has one plane in each image, and the planes are `stride` elements apart.
template <class T>
struct NormChannel {
  const T *x, *dy;
  T* out;  // the output: y in the forward pass, dx in the backward pass
  i64 images, stride, plane;
};
struct Moments {
  double mean, variance;  // the statistics of the channel, with the biased variance
};
// The two sums over a channel that the gradient needs: the sum of dy, and that of dy (x - mean) factor.
struct GradientSums {
  double dy, dy_x;
};
// The coefficients with which an element is computed. Forward: out = (x - mean) scale + shift. Gradient: out = (gain dy - shift - (x -
// mean) slope) scale.
template <class W>
struct Line {
  W mean, scale, shift, slope, gain = 1;
};
#endif
}  // namespace spillway::kernels

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

template <class T>
struct OnLine {
  Line<T> line;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::Add(hn::Mul(hn::Sub(x, hn::Set(d, line.mean)), hn::Set(d, line.scale)), hn::Set(d, line.shift));
  }
};
template <class T>
struct GradientOnLine {
  Line<T> line;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V dy) const {
    const V slope = hn::Mul(hn::Sub(x, hn::Set(d, line.mean)), hn::Set(d, line.slope));
    const V gradient = hn::Mul(dy, hn::Set(d, line.gain));
    return hn::Mul(hn::Sub(hn::Sub(gradient, hn::Set(d, line.shift)), slope), hn::Set(d, line.scale));
  }
};

// Copies the planes of several images. Successive planes are from_stride apart in `from` and to_stride apart in `to`.
template <class S>
HWY_INLINE void copy_planes(const S* from, i64 from_stride, S* to, i64 to_stride, i64 planes, i64 plane) {
  const auto each = [&](auto size) HWY_ATTR {
    for (i64 n = 0; n < planes; ++n) std::memcpy(to + n * to_stride, from + n * from_stride, static_cast<size_t>(size) * sizeof(S));
  };
  if (plane == 1) return each(std::integral_constant<i64, 1>());
  if (plane == 4) return each(std::integral_constant<i64, 4>());
  if (plane == 16) return each(std::integral_constant<i64, 16>());
  each(plane);
}

// Calls f(x, dy, out, n) for each plane of the channel, where n is the number of elements. Several short planes are gathered into one call
// of up to kGathered elements, because a call costs as much for few elements as for many.
template <class S, class F>
HWY_INLINE void for_lines(const NormChannel<S>& c, F f) {
  if (c.plane > kShortPlane) {
    for (i64 at = 0, n = 0; n < c.images; ++n, at += c.stride)
      f(c.x + at, c.dy ? c.dy + at : nullptr, c.out ? c.out + at : nullptr, c.plane);
    return;
  }
  HWY_ALIGN S x[kGathered], dy[kGathered], out[kGathered];
  for (i64 n = 0; n < c.images; n += kGathered / c.plane) {
    const i64 planes = std::min(kGathered / c.plane, c.images - n), at = n * c.stride;
    copy_planes(c.x + at, c.stride, x, c.plane, planes, c.plane);
    if (c.dy) copy_planes(c.dy + at, c.stride, dy, c.plane, planes, c.plane);
    f(x, dy, out, planes * c.plane);
    if (c.out) copy_planes(out, c.plane, c.out + at, c.stride, planes, c.plane);
  }
}

template <class S>
HWY_ATTR Moments moments(NormChannel<S> c) {
  using T = Wide<S>;
  c.dy = nullptr, c.out = nullptr;
  const double count = static_cast<double>(c.images * c.plane);
  double sum = 0, squares = 0;
  for_lines(c, [&](const S* x, const S*, S*, i64 n) HWY_ATTR { sum += static_cast<double>(sum_row(x, n, T(0), Itself<T>())); });
  const T mean = static_cast<T>(sum / count);
  for_lines(c,
            [&](const S* x, const S*, S*, i64 n) HWY_ATTR { squares += static_cast<double>(sum_row(x, n, mean, SquareAround<T>{mean})); });
  return {sum / count, squares / count};
}

template <class S>
HWY_ATTR void normalise(NormChannel<S> c, Line<Wide<S>> line) {
  c.dy = nullptr;
  for_lines(c, [&](const S* x, const S*, S* out, i64 n) HWY_ATTR { map(x, out, n, OnLine<Wide<S>>{line}); });
}

template <class S>
HWY_ATTR GradientSums gradient_sums(NormChannel<S> c, Wide<S> mean, Wide<S> factor) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  c.out = nullptr;
  double dy_sum = 0, dy_x_sum = 0;
  for_lines(c, [&](const S* x, const S* dy, S*, i64 n) HWY_ATTR {
    auto sum = hn::Zero(d), sum_x = hn::Zero(d);
    for (i64 i = 0; i < n; i += lanes) {
      const i64 used = std::min(lanes, n - i);
      const bool whole = used == lanes;
      const auto gradient = whole ? load(d, dy + i) : load_rest(d, dy + i, used, T(0));
      const auto centred = hn::Sub(whole ? load(d, x + i) : load_rest(d, x + i, used, mean), hn::Set(d, mean));
      sum = hn::Add(sum, gradient);
      sum_x = hn::MulAdd(gradient, hn::Mul(centred, hn::Set(d, factor)), sum_x);
    }
    dy_sum += static_cast<double>(fold_sum<T>(sum));
    dy_x_sum += static_cast<double>(fold_sum<T>(sum_x));
  });
  return {dy_sum, dy_x_sum};
}

template <class S>
HWY_ATTR void input_gradient(const NormChannel<S>& c, Line<Wide<S>> line) {
  for_lines(c, [&](const S* x, const S* dy, S* out, i64 n) HWY_ATTR { map(x, dy, out, n, GradientOnLine<Wide<S>>{line}); });
}

SPILLWAY_FOR_TYPES(moments, moments);
SPILLWAY_FOR_TYPES(normalise, normalise);
SPILLWAY_FOR_TYPES(sums, gradient_sums);
SPILLWAY_FOR_TYPES(input_gradient, input_gradient);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {

SPILLWAY_EXPORT_TYPES(moments);
SPILLWAY_EXPORT_TYPES(normalise);
SPILLWAY_EXPORT_TYPES(sums);
SPILLWAY_EXPORT_TYPES(input_gradient);

i64 channels_of(const Tensor& x) { return x.size(1); }
i64 plane_of(const Tensor& x) { return x.elems() / (x.size(0) * x.size(1)); }

void check(const Tensor& x, const Tensor& statistics) {
  require(x.rank() >= 2 && x.is_contiguous() && x.elems() > 0, "[batch_norm] expected a contiguous x[N, C, ...] with at least one element");
  require(statistics.shape() == (Shape{x.size(1), 2}) && statistics.dtype() == wide_dtype(x.dtype()),
          "[batch_norm] expected statistics [C, 2] in f32 (f64 if x is f64)");
}

void check(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& other) {
  check(x, statistics);
  require(gamma.shape() == Shape{x.size(1)} && gamma.dtype() == x.dtype(),
          "[batch_norm] expected a gamma with one element for each channel, of x's dtype");
  require(other.shape() == x.shape() && other.is_contiguous() && other.dtype() == x.dtype(),
          "[batch_norm] expected a contiguous y, or gradient of y, of x's shape and dtype");
}

template <class T>
NormChannel<T> channel(const Tensor& x, const T* dy, T* out, i64 c) {
  const i64 plane = plane_of(x), at = c * plane;
  return {x.data<T>() + at, dy ? dy + at : nullptr, out ? out + at : nullptr, x.size(0), channels_of(x) * plane, plane};
}

// Calls body(channel) for all channels. A task computes several channels, so
// that their planes fill whole cache lines and are worth the cost of a task.
template <class Body>
void for_channels(const Tensor& x, Body body) {
  constexpr i64 elements = 1 << 12, line = 64;
  const i64 plane = plane_of(x), least = ceil_div(line, plane * size_of(x.dtype()));
  Stream::current().for_ranges(channels_of(x), round_up(std::max<i64>(1, elements / (x.size(0) * plane)), least), [&](i64 begin, i64 end) {
    for (i64 c = begin; c < end; ++c) body(c);
  });
}

template <class W>
W factor_of(double variance, double eps) {
  return static_cast<W>(1 / std::sqrt(variance + eps));
}

}  // namespace

void batch_statistics(const Tensor& x, double eps, const Tensor& statistics, const Tensor& mean, const Tensor& variance) {
  check(x, statistics);
  const i64 count = x.size(0) * plane_of(x);
  if (count < 2) {
    throw Error(ErrorCode::usage,
                "[batch norm] expected more than one element for each channel in training, because a single element has no variance: use "
                "more images in a micro-batch (--micro-batch-size) or larger images (--image-size)");
  }
  if (x.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(x, batch_statistics(x, eps, statistics, mean, variance));
  for_dtype("batch_norm", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    W *to = statistics.data<W>(), *means = data_or_null<W>(mean), *variances = data_or_null<W>(variance);
    for_channels(x, [&](i64 c) {
      const Moments now = SPILLWAY_DISPATCH_TYPE(T, moments, channel<T>(x, nullptr, nullptr, c));
      to[2 * c] = static_cast<W>(now.mean);
      to[2 * c + 1] = factor_of<W>(now.variance, eps);
      if (means) means[c] = static_cast<W>(now.mean);
      if (variances) variances[c] = static_cast<W>(now.variance * static_cast<double>(count) / static_cast<double>(count - 1));
    });
  });
}

void running_statistics(const Tensor& running_mean, const Tensor& running_variance, double eps, const Tensor& statistics) {
  require(statistics.elems() == 2 * running_mean.elems() && running_mean.shape() == running_variance.shape(),
          "[batch_norm] expected two statistics, a running mean and a running variance for each channel");
  if (statistics.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(statistics, running_statistics(running_mean, running_variance, eps, statistics));
  for_dtype("batch_norm", statistics.dtype(), [&]<class W>(W) {
    if constexpr (sizeof(W) > 2) {
      for (i64 c = 0; c < running_mean.elems(); ++c) {
        statistics.data<W>()[2 * c] = running_mean.data<W>()[c];
        statistics.data<W>()[2 * c + 1] = factor_of<W>(static_cast<double>(running_variance.data<W>()[c]), eps);
      }
    }
  });
}

void batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y) {
  check(x, gamma, statistics, y);
  require(beta.shape() == gamma.shape() && beta.dtype() == gamma.dtype(), "[batch_norm] expected a beta with the shape and dtype of gamma");
  if (x.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(x, batch_norm(x, gamma, beta, statistics, y));
  for_dtype("batch_norm", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const W* s = statistics.data<W>();
    for_channels(x, [&](i64 c) {
      const W scale = s[2 * c + 1] * widen(gamma.data<T>()[c]);
      SPILLWAY_DISPATCH_TYPE(T, normalise, channel<T>(x, nullptr, y.data<T>(), c), Line<W>{s[2 * c], scale, widen(beta.data<T>()[c]), 0});
    });
  });
}

void batch_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool of_batch, const Tensor& dx,
                         const Tensor& dgamma, const Tensor& dbeta) {
  check(x, gamma, statistics, dy);
  if (x.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(x, batch_norm_gradient(x, gamma, statistics, dy, of_batch, dx, dgamma, dbeta));
  const double count = static_cast<double>(x.size(0) * plane_of(x));
  for_dtype("batch_norm", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const W* s = statistics.data<W>();
    for_channels(x, [&](i64 c) {
      const W mean = s[2 * c], factor = s[2 * c + 1];
      const NormChannel<T> one = channel<T>(x, dy.data<T>(), data_or_null<T>(dx), c);
      const GradientSums sums = SPILLWAY_DISPATCH_TYPE(T, sums, one, mean, factor);
      if (dgamma.defined()) dgamma.data<W>()[c] = static_cast<W>(sums.dy_x);
      if (dbeta.defined()) dbeta.data<W>()[c] = static_cast<W>(sums.dy);
      // The gradient is dx = factor gamma (dy - mean(dy) - h mean(dy h)), with h = (x - mean) factor. Where the statistics do not depend on
      // x, mean(dy) and mean(dy h) are left out.
      Line<W> line{mean, factor * widen(gamma.data<T>()[c]), 0, 0};
      if (of_batch) {
        line.shift = static_cast<W>(sums.dy / count);
        line.slope = factor * static_cast<W>(sums.dy_x / count);
      }
      if (one.out) SPILLWAY_DISPATCH_TYPE(T, input_gradient, one, line);
    });
  });
}

namespace {

// The groups of a group norm. `number` counts the groups of all images together; `width` is the number of channels in a group.
struct Groups {
  i64 number, width;
  Groups(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& other)
      : number(statistics.size(0)), width(x.size(0) * x.size(1) / std::max<i64>(1, number)) {
    require(x.rank() >= 2 && x.is_contiguous() && x.elems() > 0 && number % x.size(0) == 0 && number * width == x.size(0) * x.size(1),
            "[group_norm] expected a contiguous x[N, C, ...] and a number of groups that divides the number of channels");
    require(statistics.shape() == (Shape{number, 2}) && statistics.dtype() == wide_dtype(x.dtype()),
            "[group_norm] expected two statistics for each group of each image, in f32 (f64 if x is f64)");
    require(gamma.shape() == Shape{x.size(1)} && gamma.dtype() == x.dtype(),
            "[group_norm] expected a gamma with one element for each channel, of x's dtype");
    require(other.shape() == x.shape() && other.is_contiguous() && other.dtype() == x.dtype(),
            "[group_norm] expected a contiguous y, or gradient of y, of x's shape and dtype");
  }
};

// Returns a view of x[N, C, ...] as a single image with N C channels: [1, N C, plane].
Tensor as_one_image(const Tensor& x) { return x.reshape({1, x.size(0) * x.size(1), plane_of(x)}); }

}  // namespace

void group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y) {
  const Groups groups(x, gamma, statistics, y);
  require(beta.shape() == gamma.shape() && beta.dtype() == gamma.dtype(), "[group_norm] expected a beta with the shape and dtype of gamma");
  if (x.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(x, group_norm(x, gamma, beta, statistics, y));
  for_dtype("group_norm", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const Tensor planes = as_one_image(x);
    Stream::current().run(planes.size(1), [&](i64 p, int) {
      const W* s = statistics.data<W>() + 2 * (p / groups.width);
      const i64 c = p % x.size(1);
      SPILLWAY_DISPATCH_TYPE(T, normalise, channel<T>(planes, nullptr, y.data<T>(), p),
                             Line<W>{s[0], s[1] * widen(gamma.data<T>()[c]), widen(beta.data<T>()[c]), 0});
    });
  });
}

void group_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, const Tensor& dx,
                         const Tensor& dgamma, const Tensor& dbeta) {
  const Groups groups(x, gamma, statistics, dy);
  if (x.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(x, group_norm_gradient(x, gamma, statistics, dy, dx, dgamma, dbeta));
  const double count = static_cast<double>(groups.width * plane_of(x));
  for_dtype("group_norm", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const Tensor planes = as_one_image(x);
    Stream::current().run(groups.number, [&](i64 g, int) {
      const W mean = statistics.data<W>()[2 * g], factor = statistics.data<W>()[2 * g + 1];
      const auto plane = [&](i64 p) { return channel<T>(planes, dy.data<T>(), data_or_null<T>(dx), p); };
      const auto gain = [&](i64 p) { return widen(gamma.data<T>()[p % x.size(1)]); };
      GradientSums all{0, 0};
      for (i64 p = g * groups.width; p < (g + 1) * groups.width; ++p) {
        const GradientSums sums = SPILLWAY_DISPATCH_TYPE(T, sums, plane(p), mean, factor);
        if (dgamma.defined()) dgamma.data<W>()[p] = static_cast<W>(sums.dy_x);
        if (dbeta.defined()) dbeta.data<W>()[p] = static_cast<W>(sums.dy);
        all.dy += static_cast<double>(gain(p)) * sums.dy;
        all.dy_x += static_cast<double>(gain(p)) * sums.dy_x;
      }
      // The gradient is dx = factor (d - mean(d) - h mean(d h)), with h = (x - mean) factor and d = gamma dy.
      const W shift = static_cast<W>(all.dy / count), slope = factor * static_cast<W>(all.dy_x / count);
      for (i64 p = g * groups.width; p < (g + 1) * groups.width && dx.defined(); ++p)
        SPILLWAY_DISPATCH_TYPE(T, input_gradient, plane(p), Line<W>{mean, factor, shift, slope, gain(p)});
    });
  });
}

}  // namespace spillway::kernels
#endif
