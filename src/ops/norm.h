// Normalisation over the last axis, of inputs of any strides. Statistics in wide_dtype of x (PyTorch's formulas); parameter gradients are
// sums over rows in a fixed partition that depends on the shape alone (in f32 for bf16 and f16, whose gamma and beta must be parameters of
// the tape, or constants). Saves x and the row statistics, never the normalised values.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// (x - mean) / sqrt(var + eps) * gamma + beta with the biased variance; x[..., C], gamma[C], beta[C].
Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, double eps);
/// x / sqrt(mean(x^2) + eps) * (gamma + gain_offset) (Zhang and Sennrich, arXiv:1910.07467; Gemma's gains are around 0, with an offset of
/// 1).
Variable rms_norm(const Variable& x, const Variable& gamma, double eps, double gain_offset = 0);

}  // namespace spillway::ops
