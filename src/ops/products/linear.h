// Linear layers: matrix products with an optional bias and residual, for f32, f64, bf16
// and f16 (summed in f32) and inputs of any strides. Legend: I = inputs, O = outputs.
#pragma once
#include "ops/products/weight.h"

namespace spillway::ops {

using autograd::Variable;

/// The memory layout of a linear layer's weight: [O, I] (PyTorch, Llama) or [I, O] (GPT-2's Conv1D).
enum class WeightLayout { out_in, in_out };

/// Returns y[..., O] = (residual[..., O] +) x[..., I] w (+ bias[O]). A `bias` or `residual` without a value is left out. A GPU adds the
/// residual within the matrix product, so that the sum is rounded once (kernels::matmul_onto). If x already has a gradient from other ops,
/// backward adds that gradient within a matrix product too.
Variable linear(const Variable& x, const Variable& w, const Variable& bias, WeightLayout layout, const Variable& residual = {});

struct LinearWeights {
  Weight w;
  Variable bias;
  WeightLayout layout;
  // Whether the three products of forward and backward round their bf16 operands to fp8 (kernels/products/fp8.h): inputs and weights to
  // e4m3, gradients of the result to e5m2. Biases, residuals and results stay bf16, and weight gradients fp32.
  bool fp8 = false;
};
Variable linear(const Variable& x, const LinearWeights& weights, const Variable& residual = {});

/// Computes linear(gelu_tanh(linear(x, up)), down, residual). The matrix products compute gelu
/// and its gradient too (kernels::matmul_gelu). Neither layer may be fp8. The tape saves x, gelu's input and gelu's output.
Variable gelu_mlp(const Variable& x, const LinearWeights& up, const LinearWeights& down, const Variable& residual = {});

/// Returns x[..., C] w[V, C]^T in wide_dtype of x, so that the logits to sample from are not rounded. With `softcap` above
/// 0 the result is softcap * tanh(logits / softcap). It is not differentiable; loss.h has the fused head for training.
Tensor logits(const Tensor& x, const Tensor& w, double softcap = 0);

}  // namespace spillway::ops
