// Causal depthwise convolution over positions, for f32, f64, bf16 and f16; bf16 and f16 are computed in f32. State-space layers (Gu and
// Dao, arXiv:2312.00752) and gated short convolutions use it. Legend: B = batch size, T = positions, C = channels, K = taps of the filter.
//   y[b, t, c] = act(sum over j < K of w[c, j] x[b, t - K + 1 + j, c] + bias[c]),
// where taps before the first position of an element's document count as zero. The sum runs over j in ascending order from the bias on, and
// leaves such taps out; the results of a document are therefore bitwise the same whatever lies beside it.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

inline constexpr i64 kMaxConvTaps = 8;

struct ShortConvOptions {
  bool silu = false;    // whether act is SiLU; otherwise it is the identity
  Tensor positions_BT;  // int32: each element's position in its document, from 0; undefined if each row is one document
};

/// The contiguous inputs x[B, T, C], w[C, K] with K from 1 to kMaxConvTaps, and bias[C], of one dtype. `bias` may be undefined.
struct ShortConvTensors {
  Tensor x_BTC, w_CK, bias_C;
};

/// Computes y[B, T, C]. before[B, K - 1, C] holds the inputs before the first position of each row; without it they count as zero.
/// after[B, K - 1, C], if it is defined, receives the inputs before the position that follows the row; it must not be `before`. Both have
/// the dtype of x.
void short_conv(const ShortConvTensors& in, const ShortConvOptions& options, const Tensor& before, const Tensor& y, const Tensor& after);

/// Overwrites the gradients of short_conv() without `before`. That of x has the dtype of x, those of w and the bias are in wide_dtype of
/// it. A gradient whose tensor is undefined is not computed.
void short_conv_gradient(const ShortConvTensors& in, const ShortConvOptions& options, const Tensor& dy_BTC,
                         const ShortConvTensors& gradients);

namespace cuda {
decltype(kernels::short_conv) short_conv;
decltype(kernels::short_conv_gradient) short_conv_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
