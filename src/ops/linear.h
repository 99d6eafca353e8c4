// Matrix products, f32, f64, bf16 and f16 (summed in f32), contiguous inputs. Legend: I = inputs, O = outputs, M, K, N = rows, inner
// extent, columns.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// How a linear weight lies in memory: [O, I] (PyTorch, Llama) or [I, O] (GPT-2's Conv1D).
enum class WeightLayout { out_in, in_out };

/// y[..., O] = x[..., I] w (+ bias[O]). `bias` without a value means none.
Variable linear(const Variable& x, const Variable& w, const Variable& bias, WeightLayout layout);

/// x[..., C] w[V, C]^T in wide_dtype of x: what is sampled from is not rounded. Not differentiable (loss.h has the fused head).
Tensor logits(const Tensor& x, const Tensor& w);

/// a[..., M, K] b[..., K, N] -> [..., M, N]; equal batch extents, or b of rank 2.
Variable matmul(const Variable& a, const Variable& b);

}  // namespace spillway::ops
