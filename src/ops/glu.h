// Gated linear units (Shazeer, arXiv:2002.05202), fused: the gate's activation is recomputed in backward, not saved.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// silu(gate) * up; equal shapes, any strides.
Variable swiglu(const Variable& gate, const Variable& up);
/// gelu_tanh(gate) * up.
Variable geglu(const Variable& gate, const Variable& up);

}  // namespace spillway::ops
