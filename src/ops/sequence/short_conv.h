// The causal depthwise convolution over positions that kernels/sequence/short_conv.h describes. Forward saves its inputs alone. Legend: B =
// batch size, T = positions, C = channels, K = taps of the filter.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

struct ShortConvOptions {
  bool silu = false;  // whether SiLU is applied to the result
  // The int32 position of each element within its document, for rows that hold several documents: no tap reaches before the first position
  // of its document. Undefined if each row is one document.
  Tensor positions_BT;
  // The inputs before the first position, and those before the position that follows the last one, [B, K - 1, C], for generation without a
  // tape. Without the first ones, they count as zero. The last ones are written if they are defined; they must not be the first ones.
  Tensor first_inputs, last_inputs;
};

/// Returns y[B, T, C] of x, the filters w, [C, K] or [C, 1, K] with K from 1 to 8, and the bias [C], which may have no value. All are of
/// one dtype.
Variable short_conv(const Variable& x_BTC, const Variable& w, const Variable& bias_C, const ShortConvOptions& options);

}  // namespace spillway::ops
