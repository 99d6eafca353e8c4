// Matrix products, f32, f64, bf16 and f16 (summed in f32), inputs of any strides. Legend: I = inputs, O = outputs.
#pragma once
#include "ops/weight.h"

namespace spillway::ops {

using autograd::Variable;

/// How a linear weight lies in memory: [O, I] (PyTorch, Llama) or [I, O] (GPT-2's Conv1D).
enum class WeightLayout { out_in, in_out };

/// y[..., O] = (residual[..., O] +) x[..., I] w (+ bias[O]). `bias` and `residual` without a value mean none. A GPU adds within the product
/// and rounds once (kernels::matmul_onto), as it does where x's gradient is added to that of other uses.
Variable linear(const Variable& x, const Variable& w, const Variable& bias, WeightLayout layout, const Variable& residual = {});

struct LinearWeights {
  Weight w;
  Variable bias;
  WeightLayout layout;
};
Variable linear(const Variable& x, const LinearWeights& weights, const Variable& residual = {});

/// linear(gelu_tanh(linear(x, up)), down, residual), where gelu and its gradient are parts of the products (kernels::matmul_gelu). Saves x,
/// what gelu is taken of, and gelu.
Variable gelu_mlp(const Variable& x, const LinearWeights& up, const LinearWeights& down, const Variable& residual = {});

/// x[..., C] w[V, C]^T in wide_dtype of x: what is sampled from is not rounded. `softcap` above 0: softcap * tanh(that / softcap). Not
/// differentiable (loss.h has the fused head).
Tensor logits(const Tensor& x, const Tensor& w, double softcap = 0);

}  // namespace spillway::ops
