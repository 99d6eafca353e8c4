#include "kernels/dispatch.h"
#include "kernels/lanes_cuda.h"
#include "kernels/sequence/short_conv_problem.h"

namespace spillway::kernels::cuda {
namespace {

// Returns the filter's sum at position t of row b, channel c.
template <class S>
__device__ Wide<S> filtered(const ConvProblem<S>& p, i64 b, i64 t, i64 c) {
  Wide<S> sum = p.bias ? widen(p.bias[c]) : Wide<S>(0);
  for (i64 j = p.K - 1 - p.reach(b, t); j < p.K; ++j) sum = std::fma(widen(p.input(b, t - p.K + 1 + j)[c]), widen(p.w[c * p.K + j]), sum);
  return sum;
}

// Returns the gradient of that sum.
template <class S>
__device__ Wide<S> slope(const ConvProblem<S>& p, const S* dy, i64 b, i64 t, i64 c) {
  const Wide<S> gradient = widen(dy[(b * p.T + t) * p.C + c]);
  if (!p.silu) return gradient;
  const Wide<S> sum = filtered(p, b, t, c), s = 1 / (1 + std::exp(-sum));
  return gradient * s * std::fma(sum, 1 - s, Wide<S>(1));
}

template <class S>
struct Convolve {
  ConvProblem<S> p;
  S* y;
  __device__ void operator()(i64 i) const {
    const i64 c = i % p.C, t = i / p.C % p.T, b = i / p.C / p.T;
    const Wide<S> sum = filtered(p, b, t, c);
    y[i] = narrow<S>(p.silu ? sum / (1 + std::exp(-sum)) : sum);
  }
};

template <class S>
struct KeepLast {
  ConvProblem<S> p;
  S* after;
  __device__ void operator()(i64 i) const {
    const i64 c = i % p.C, b = i / p.C / (p.K - 1), t = p.T - (p.K - 1) + i / p.C % (p.K - 1);
    after[i] = t < 0 && !p.before ? S() : p.input(b, t)[c];
  }
};

template <class S>
struct InputGradient {
  ConvProblem<S> p;
  const S* dy;
  S* dx;
  __device__ void operator()(i64 i) const {
    const i64 c = i % p.C, t = i / p.C % p.T, b = i / p.C / p.T;
    Wide<S> sum = 0;
    for (i64 u = t; u < p.T && u < t + p.K && p.reach(b, u) >= u - t; ++u)
      sum = std::fma(slope(p, dy, b, u, c), widen(p.w[c * p.K + p.K - 1 - (u - t)]), sum);
    dx[i] = narrow<S>(sum);
  }
};

// A thread block computes the gradients of kChannels channels of w and the bias. Each of its kParts rows of threads sums every kParts-th
// position; the sums of the rows are then added in order.
constexpr int kChannels = 32, kParts = 8;
template <class S>
__global__ void __launch_bounds__(kChannels* kParts) filter_gradient(ConvProblem<S> p, const S* dy, Wide<S>* dw, Wide<S>* dbias) {
  using T = Wide<S>;
  __shared__ T shared[kParts][kMaxConvTaps + 1][kChannels];
  const int lane = static_cast<int>(threadIdx.x) % kChannels, part = static_cast<int>(threadIdx.x) / kChannels;
  const i64 c = i64{blockIdx.x} * kChannels + lane;
  T sums[kMaxConvTaps + 1] = {};
  for (i64 row = part; c < p.C && row < p.B * p.T; row += kParts) {
    const i64 b = row / p.T, t = row % p.T, reach = p.reach(b, t);
    const T gradient = slope(p, dy, b, t, c);
    // The sums are indexed by the distance of the input, by constants, so that they stay in registers.
    for (int back = 0; back < kMaxConvTaps; ++back) {
      if (back <= reach) sums[back] = std::fma(gradient, widen(p.input(b, t - back)[c]), sums[back]);
    }
    sums[kMaxConvTaps] += gradient;
  }
  for (int i = 0; i <= kMaxConvTaps; ++i) shared[part][i][lane] = sums[i];
  __syncthreads();
  if (part != 0 || c >= p.C) return;
  for (int i = 0; i <= kMaxConvTaps; ++i) {
    T sum = 0;
    for (int k = 0; k < kParts; ++k) sum += shared[k][i][lane];
    if (i == kMaxConvTaps) {
      if (dbias) dbias[c] = sum;
    } else if (dw && i < p.K) {
      dw[c * p.K + p.K - 1 - i] = sum;
    }
  }
}

}  // namespace

void short_conv(const ShortConvTensors& in, const ShortConvOptions& options, const Tensor& before, const Tensor& y, const Tensor& after) {
  for_dtype("short_conv", y.dtype(), [&]<class S>(S) {
    const ConvProblem<S> p(in, options, before);
    for_each_on_gpu("short_conv", y.elems(), Convolve<S>{p, y.data<S>()});
    if (after.defined()) for_each_on_gpu("short_conv", after.elems(), KeepLast<S>{p, after.data<S>()});
  });
}

void short_conv_gradient(const ShortConvTensors& in, const ShortConvOptions& options, const Tensor& dy, const ShortConvTensors& to) {
  for_dtype("short_conv_gradient", dy.dtype(), [&]<class S>(S) {
    const ConvProblem<S> p(in, options, {});
    const S* gradient = dy.data<S>();
    if (to.x_BTC.defined()) for_each_on_gpu("short_conv_gradient", dy.elems(), InputGradient<S>{p, gradient, to.x_BTC.data<S>()});
    if (!to.w_CK.defined() && !to.bias_C.defined()) return;
    launch("short_conv_gradient", filter_gradient<S>, dim3(static_cast<unsigned>(ceil_div(p.C, kChannels))), dim3(kChannels * kParts), p,
           gradient, data_or_null<Wide<S>>(to.w_CK), data_or_null<Wide<S>>(to.bias_C));
  });
}

}  // namespace spillway::kernels::cuda
