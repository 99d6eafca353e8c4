// Holds what the CPU and the GPU share of short_conv.h: the addresses of a convolution and which taps reach into an element's document.
#pragma once
#include "kernels/sequence/short_conv.h"

namespace spillway::kernels {

template <class S>
struct ConvProblem {
  i64 B, T, C, K;
  bool silu;
  const S *x, *w, *bias, *before;  // bias and before may be null
  const i32* positions;            // null if each row is one document

  ConvProblem(const ShortConvTensors& in, const ShortConvOptions& options, const Tensor& inputs_before)
      : B(in.x_BTC.size(0)),
        T(in.x_BTC.size(1)),
        C(in.x_BTC.size(2)),
        K(in.w_CK.size(1)),
        silu(options.silu),
        x(in.x_BTC.data<S>()),
        w(in.w_CK.data<S>()),
        bias(data_or_null<S>(in.bias_C)),
        before(data_or_null<S>(inputs_before)),
        positions(data_or_null<i32>(options.positions_BT)) {}

  /// Returns how many earlier inputs the output of position t of row b uses, at most K - 1.
  constexpr i64 reach(i64 b, i64 t) const {
    i64 most = K - 1;
    if (!before && t < most) most = t;
    return positions && positions[b * T + t] < most ? positions[b * T + t] : most;
  }
  /// Returns the channels of the input at position t >= 1 - K of row b. Positions below 0 lie in `before`.
  constexpr const S* input(i64 b, i64 t) const { return t >= 0 ? x + (b * T + t) * C : before + (b * (K - 1) + K - 1 + t) * C; }
};

}  // namespace spillway::kernels
