// Rotary position embedding (Su et al., arXiv:2104.09864), which rotates pairs of elements of a head. The two elements of a pair lie half a
// head apart (Llama) or side by side (the paper, GPT-J). Legend: B = batch size, T = positions, H = heads, D = elements of a head.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Rotates the pairs (i, i + D/2) of x[B, T, H, D] by the angle positions_BT[b, t] * inverse_frequencies[i] and multiplies the rotated
/// elements by attention_scaling. For f32 and bf16 the angle is fp32(position) * fp32(frequency), as transformers computes it; for f64 it
/// is computed in fp64.
Variable rope(const Variable& x_BTHD, const Tensor& positions_BT, std::span<const double> inverse_frequencies,
              double attention_scaling = 1);
/// Computes rope() for the pairs (2i, 2i + 1) instead of (i, i + D/2). For this, x is permuted, rotated, and permuted back.
Variable rope_interleaved(const Variable& x_BTHD, const Tensor& positions_BT, std::span<const double> inverse_frequencies,
                          double attention_scaling = 1);

/// Returns x[B, T, H, D] times 1 + growth * ln(1 + floor(position / original)), with positions_BT[b, t] in int32
/// (kernels/sequence/query_growth.h).
Variable grown(const Variable& x_BTHD, const Tensor& positions_BT, double growth, i64 original);

}  // namespace spillway::ops
