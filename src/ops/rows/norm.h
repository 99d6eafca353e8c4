// Layer norm and RMS norm over the last axis, for inputs of any strides. Statistics are in wide_dtype of x (PyTorch's formulas). Parameter
// gradients are sums over rows; how a sum is split depends on the shape alone. For bf16 and f16 these gradients are f32, so gamma and beta
// must be parameters of the tape or constants. Forward saves x and the row statistics, never the normalised values.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns (x - mean) / sqrt(var + eps) * gamma + beta with the biased variance, for x[..., C], gamma[C] and beta[C]. There is no beta if
/// it is undefined.
Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, double eps);
/// Returns x / sqrt(mean(x^2) + eps) * (gamma + gain_offset) (Zhang and Sennrich,
/// arXiv:1910.07467). Gemma's gains lie around 0, so Gemma uses an offset of 1.
Variable rms_norm(const Variable& x, const Variable& gamma, double eps, double gain_offset = 0);

}  // namespace spillway::ops
