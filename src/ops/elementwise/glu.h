// Gated linear units (Shazeer, arXiv:2002.05202) as one fused op: backward recomputes the gate's activation instead of saving it.
#pragma once
#include "autograd/tape.h"
#include "kernels/elementwise/clamped_glu.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns silu(gate) * up, for gate and up of one shape and any strides.
Variable swiglu(const Variable& gate, const Variable& up);
/// Returns gelu_tanh(gate) * up, for gate and up of one shape and any strides.
Variable geglu(const Variable& gate, const Variable& up);
/// Returns the clamped gated linear unit of gpt-oss (kernels/elementwise/clamped_glu.h), for gate and up of one shape and any strides.
Variable clamped_swiglu(const Variable& gate, const Variable& up, const kernels::GluClamp& clamp = {});

}  // namespace spillway::ops
