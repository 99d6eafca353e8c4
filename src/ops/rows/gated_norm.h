// The gated norm of Mamba 2 (Dao and Gu, arXiv:2405.21060), for inputs of any strides. Forward saves x, the gate and the row statistics;
// backward computes the gated x again.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns the RMS norm of x * silu(gate), taken over each of `groups` equal parts of the last axis, times gamma; x and gate are [..., C]
/// and gamma is [C], all of one dtype. The gated x is rounded to that dtype before the norm.
Variable gated_rms_norm(const Variable& x, const Variable& gate, const Variable& gamma, double eps, i64 groups = 1);

}  // namespace spillway::ops
