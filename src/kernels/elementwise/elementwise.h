// Element-wise kernels for f32, f64, bf16 and f16; bf16 and f16 are computed in f32 and rounded once when they are stored. Tensors are
// contiguous unless stated otherwise. The result for an element is bitwise the same at every position. On the CPU the fast paths (Highway,
// one per instruction set) are within 4 ulp of a plain loop with std:: functions. A GPU computes the CPU's formulas with CUDA's functions,
// each within 2 ulp.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

enum class Unary { exp, log, sqrt, rsqrt, tanh, sigmoid, relu, relu_squared, silu, gelu_tanh, gelu_erf };

/// Returns whether the op's gradient is computed from the op's output. For all other ops it is computed from the input.
constexpr bool gradient_wants_output(Unary op) {
  return op == Unary::exp || op == Unary::sqrt || op == Unary::rsqrt || op == Unary::tanh || op == Unary::sigmoid;
}

void unary(Unary op, const Tensor& x, const Tensor& y);
/// Computes dx = dy * op'(kept). `kept` is the op's output if gradient_wants_output(op), and its input otherwise. dx may be dy.
void unary_gradient(Unary op, const Tensor& kept, const Tensor& dy, const Tensor& dx);

/// Computes y = x * factor. The factor is first rounded to the type of the arithmetic. y may be x.
void scale(const Tensor& x, double factor, const Tensor& y);

/// Computes y = cap * tanh(x / cap) with cap > 0, which is Gemma 2's soft cap (arXiv:2408.00118). y may be x.
void softcap(const Tensor& x, double cap, const Tensor& y);

/// The activation that a gated linear unit applies to its gate (Shazeer, arXiv:2002.05202).
enum class Glu { silu, gelu_tanh };
/// glu() computes y = activation(gate) * up. glu_gradient() computes dgate and dup; a gradient whose tensor is undefined is not computed.
void glu(Glu activation, const Tensor& gate, const Tensor& up, const Tensor& y);
void glu_gradient(Glu activation, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& dgate, const Tensor& dup);

namespace cuda {
decltype(kernels::unary) unary;
decltype(kernels::unary_gradient) unary_gradient;
decltype(kernels::scale) scale;
decltype(kernels::softcap) softcap;
decltype(kernels::glu) glu;
decltype(kernels::glu_gradient) glu_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
