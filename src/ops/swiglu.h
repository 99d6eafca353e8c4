// Llama's gated activation (Shazeer, arXiv:2002.05202), fused: silu(gate) is recomputed in backward, not saved.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// silu(gate) * up; equal shapes, contiguous.
Variable swiglu(const Variable& gate, const Variable& up);

}  // namespace spillway::ops
