#include "kernels/sequence/short_conv.h"

#include <algorithm>

#include "device/stream.h"
#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/sequence/short_conv_problem.h"
#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sequence/short_conv_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include "kernels/vector_math_inl.h"

#ifndef SPILLWAY_SHORT_CONV_TILE
#define SPILLWAY_SHORT_CONV_TILE
namespace spillway::kernels {

// A task computes kConvTile channels, a whole number of vectors. Sums over positions are computed in parts of kConvPart positions.
constexpr i64 kConvTile = 64, kConvPart = 64;

// Holds what a task of the gradient writes. Each may be null.
template <class S>
struct ConvGradients {
  const S* dy;
  S* dx;
  Wide<S>*dw, *dbias;
};

}  // namespace spillway::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tile = T[kConvTile];

template <class D, class S>
HWY_INLINE hn::Vec<D> get(D d, const S* from, i64 n) {
  return n == lanes_of<S>() ? load(d, from) : load_rest(d, from, n, 0);
}
template <class D, class S>
HWY_INLINE void put(D d, hn::Vec<D> v, S* to, i64 n) {
  n == lanes_of<S>() ? store(d, v, to) : store_rest(d, v, to, n);
}

// The filter of the channels [first, first + count), tap by tap, and the bias.
template <class S>
struct Filter {
  using T = Wide<S>;
  HWY_ALIGN Tile<T> w[kMaxConvTaps];
  HWY_ALIGN Tile<T> bias;
  Filter(const ConvProblem<S>& p, i64 first, i64 count) : w{}, bias{} {
    for (i64 c = 0; c < count; ++c) {
      for (i64 j = 0; j < p.K; ++j) w[j][c] = widen(p.w[(first + c) * p.K + j]);
      if (p.bias) bias[c] = widen(p.bias[first + c]);
    }
  }
};

// Calls f(d, c, n) for each vector of `count` channels; n is the number of its channels that exist.
template <class T, class F>
HWY_INLINE void each_vector(i64 count, F f) {
  const hn::ScalableTag<T> d;
  constexpr i64 lanes = lanes_of<T>();
  for (i64 c = 0; c < count; c += lanes) f(d, c, std::min(lanes, count - c));
}

// Returns the filter's sum at one position; taps[j] is the input of tap j, from `from` on.
template <class S, class D>
HWY_INLINE hn::Vec<D> filtered(D d, const Filter<S>& filter, const S* const* taps, i64 from, i64 K, i64 c, i64 n) {
  auto sum = hn::Load(d, filter.bias + c);
  for (i64 j = from; j < K; ++j) sum = hn::MulAdd(get(d, taps[j] + c, n), hn::Load(d, filter.w[j] + c), sum);
  return sum;
}

// Sets taps[j] for the taps that position t uses, and returns the first of them.
template <class S>
HWY_INLINE i64 taps_of(const ConvProblem<S>& p, i64 b, i64 t, i64 first, const S** taps) {
  const i64 from = p.K - 1 - p.reach(b, t);
  for (i64 j = from; j < p.K; ++j) taps[j] = p.input(b, t - p.K + 1 + j) + first;
  return from;
}

// Computes positions [begin, end) of row b for the channels [first, first + count).
template <class S>
HWY_ATTR void convolve(const ConvProblem<S>& p, i64 b, i64 begin, i64 end, i64 first, i64 count, S* y) {
  using T = Wide<S>;
  const Filter<S> filter(p, first, count);
  const S* taps[kMaxConvTaps] = {};
  for (i64 t = begin; t < end; ++t) {
    const i64 from = taps_of(p, b, t, first, taps);
    S* row = y + (b * p.T + t) * p.C + first;
    each_vector<T>(count, [&](auto d, i64 c, i64 n) HWY_ATTR {
      const auto sum = filtered(d, filter, taps, from, p.K, c, n);
      put(d, p.silu ? hn::Mul(sum, sigmoid(d, sum)) : sum, row + c, n);
    });
  }
}

// The gradients of the channels [first, first + count). Shares of the sums over positions are in `part`, and all earlier parts in `sums`;
// row K holds the gradient of the bias. slopes[t % kMaxConvTaps] is the gradient of the filter's sum at position t.
template <class S>
struct TileGradient {
  using T = Wide<S>;
  const ConvProblem<S>& p;
  const ConvGradients<S>& to;
  i64 first, count;
  Filter<S> filter;
  HWY_ALIGN Tile<T> part[kMaxConvTaps + 1];
  HWY_ALIGN Tile<T> sums[kMaxConvTaps + 1];
  HWY_ALIGN Tile<T> slopes[kMaxConvTaps];

  TileGradient(const ConvProblem<S>& problem, const ConvGradients<S>& gradients, i64 begin, i64 n)
      : p(problem), to(gradients), first(begin), count(n), filter(problem, begin, n), part{}, sums{}, slopes{} {}

  HWY_ATTR void position(i64 b, i64 t) {
    const S* taps[kMaxConvTaps] = {};
    const i64 from = taps_of(p, b, t, first, taps);
    const S* dy = to.dy + (b * p.T + t) * p.C + first;
    each_vector<T>(count, [&](auto d, i64 c, i64 n) HWY_ATTR {
      auto slope = get(d, dy + c, n);
      if (p.silu) {
        const auto sum = filtered(d, filter, taps, from, p.K, c, n), s = sigmoid(d, sum), one = hn::Set(d, 1);
        slope = hn::Mul(slope, hn::Mul(s, hn::MulAdd(sum, hn::Sub(one, s), one)));
      }
      hn::Store(slope, d, slopes[t % kMaxConvTaps] + c);
      for (i64 j = from; j < p.K; ++j) hn::Store(hn::MulAdd(slope, get(d, taps[j] + c, n), hn::Load(d, part[j] + c)), d, part[j] + c);
      hn::Store(hn::Add(slope, hn::Load(d, part[p.K] + c)), d, part[p.K] + c);
    });
  }

  // Computes the gradient of the input at position t from the slopes at the positions t to t + K - 1 of its document.
  HWY_ATTR void input(i64 b, i64 t) const {
    i64 end = t + 1;
    while (end < std::min(t + p.K, p.T) && p.reach(b, end) >= end - t) ++end;
    S* dx = to.dx + (b * p.T + t) * p.C + first;
    each_vector<T>(count, [&](auto d, i64 c, i64 n) HWY_ATTR {
      auto sum = hn::Zero(d);
      for (i64 u = t; u < end; ++u)
        sum = hn::MulAdd(hn::Load(d, slopes[u % kMaxConvTaps] + c), hn::Load(d, filter.w[p.K - 1 - (u - t)] + c), sum);
      put(d, sum, dx + c, n);
    });
  }

  HWY_ATTR void close_part() {
    for (i64 j = 0; j <= p.K; ++j) {
      each_vector<T>(kConvTile, [&](auto d, i64 c, i64) HWY_ATTR {
        hn::Store(hn::Add(hn::Load(d, sums[j] + c), hn::Load(d, part[j] + c)), d, sums[j] + c);
        hn::Store(hn::Zero(d), d, part[j] + c);
      });
    }
  }

  HWY_ATTR void row(i64 b) {
    for (i64 t = 0; t < p.T + p.K - 1; ++t) {
      if (t < p.T) position(b, t);
      if (to.dx && t >= p.K - 1) input(b, t - p.K + 1);
      if (t < p.T && (t + 1) % kConvPart == 0) close_part();
    }
    close_part();
  }
};

template <class S>
HWY_ATTR void convolve_gradient(const ConvProblem<S>& p, const ConvGradients<S>& to, i64 first, i64 count) {
  TileGradient<S> tile(p, to, first, count);
  for (i64 b = 0; b < p.B; ++b) tile.row(b);
  for (i64 c = 0; c < count; ++c) {
    for (i64 j = 0; to.dw && j < p.K; ++j) to.dw[(first + c) * p.K + j] = tile.sums[j][c];
    if (to.dbias) to.dbias[first + c] = tile.sums[p.K][c];
  }
}

SPILLWAY_FOR_TYPES(convolve, convolve);
SPILLWAY_FOR_TYPES(convolve_gradient, convolve_gradient);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {
SPILLWAY_EXPORT_TYPES(convolve);
SPILLWAY_EXPORT_TYPES(convolve_gradient);

void check(const ShortConvTensors& in, const ShortConvOptions& options) {
  const Tensor &x = in.x_BTC, &w = in.w_CK, &bias = in.bias_C, &positions = options.positions_BT;
  const bool fits = x.rank() == 3 && w.rank() == 2 && w.size(0) == x.size(2) && w.size(1) >= 1 && w.size(1) <= kMaxConvTaps &&
                    w.dtype() == x.dtype() && x.is_contiguous() && w.is_contiguous();
  require(fits, "[short_conv] expected contiguous x [B, T, C] and w [C, K] of one dtype, with K from 1 to 8");
  require(!bias.defined() || (bias.shape() == Shape{x.size(2)} && bias.dtype() == x.dtype() && bias.is_contiguous()),
          "[short_conv] expected a contiguous bias [C] of the dtype of x");
  require(!positions.defined() ||
              (positions.shape() == Shape{x.size(0), x.size(1)} && positions.dtype() == DType::int32 && positions.is_contiguous()),
          "[short_conv] expected contiguous int32 positions [B, T]: each element's position within its document");
}

bool is_like(const Tensor& t, const Shape& shape, DType dtype) { return t.shape() == shape && t.dtype() == dtype && t.is_contiguous(); }

// Copies the inputs before the position that follows each row.
template <class S>
void keep_last(const ConvProblem<S>& p, S* after) {
  const i64 kept = p.K - 1;
  for (i64 b = 0; b < p.B; ++b) {
    for (i64 i = 0; i < kept; ++i) {
      const i64 t = p.T - kept + i;
      S* to = after + (b * kept + i) * p.C;
      if (t < 0 && !p.before) {
        std::fill_n(to, p.C, S());
      } else {
        std::copy_n(p.input(b, t), p.C, to);
      }
    }
  }
}

}  // namespace

void short_conv(const ShortConvTensors& in, const ShortConvOptions& options, const Tensor& before, const Tensor& y, const Tensor& after) {
  check(in, options);
  const Tensor& x = in.x_BTC;
  const Shape kept{x.size(0), in.w_CK.size(1) - 1, x.size(2)};
  require(is_like(y, x.shape(), x.dtype()), "[short_conv] expected y of the shape and dtype of x");
  for (const Tensor* state : {&before, &after})
    require(!state->defined() || is_like(*state, kept, x.dtype()), "[short_conv] expected earlier inputs [B, K - 1, C] of the dtype of x");
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, short_conv(in, options, before, y, after));
  for_dtype("short_conv", x.dtype(), [&]<class S>(S) {
    const ConvProblem<S> p(in, options, before);
    const i64 tiles = ceil_div(p.C, kConvTile), parts = ceil_div(p.T, kConvPart);
    S* to = y.data<S>();
    Stream::current().for_ranges(p.B * parts * tiles, 1, [&](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) {
        const i64 first = i % tiles * kConvTile, t = i / tiles % parts * kConvPart;
        SPILLWAY_DISPATCH_TYPE(S, convolve, p, i / tiles / parts, t, std::min(p.T, t + kConvPart), first, std::min(kConvTile, p.C - first),
                               to);
      }
    });
    if (after.defined()) keep_last(p, after.data<S>());
  });
}

void short_conv_gradient(const ShortConvTensors& in, const ShortConvOptions& options, const Tensor& dy, const ShortConvTensors& to) {
  check(in, options);
  const Tensor& x = in.x_BTC;
  const DType wide = wide_dtype(x.dtype());
  require(is_like(dy, x.shape(), x.dtype()) && (!to.x_BTC.defined() || is_like(to.x_BTC, x.shape(), x.dtype())) &&
              (!to.w_CK.defined() || is_like(to.w_CK, in.w_CK.shape(), wide)) &&
              (!to.bias_C.defined() || is_like(to.bias_C, Shape{x.size(2)}, wide)),
          "[short_conv] expected dy and the gradient of x like x, and gradients of w and the bias in the wide dtype");
  if (dy.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dy, short_conv_gradient(in, options, dy, to));
  for_dtype("short_conv_gradient", x.dtype(), [&]<class S>(S) {
    const ConvProblem<S> p(in, options, {});
    const ConvGradients<S> gradients{dy.data<S>(), data_or_null<S>(to.x_BTC), data_or_null<Wide<S>>(to.w_CK),
                                     data_or_null<Wide<S>>(to.bias_C)};
    Stream::current().for_ranges(ceil_div(p.C, kConvTile), 1, [&](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) {
        const i64 first = i * kConvTile;
        SPILLWAY_DISPATCH_TYPE(S, convolve_gradient, p, gradients, first, std::min(kConvTile, p.C - first));
      }
    });
  });
}

}  // namespace spillway::kernels
#endif
