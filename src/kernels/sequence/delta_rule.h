// The gated delta rule (Yang, Kautz and Hatamizadeh, arXiv:2412.06464) for f32, f64, bf16 and f16; bf16 and f16 are computed in f32.
// Legend: B = batch size, T = positions, J = key heads, H = value heads, K = elements of a key, V = elements of a value. A value head with
// the state S[K, V] computes at each position
//   S = exp(g) S,   S = S + k (beta (v - S^T k))^T,   o[V] = S^T q / sqrt(K),
// with g = -exp(a_log) softplus(a + dt_bias) and beta = sigmoid(b). Value head h uses q and k of key head h / (H / J). S is zero before the
// first position of each document. The rule is computed in chunks of at most kScanChunk positions, which depend on the positions within a
// document alone (document_chunks.h); on a CPU the results of a document are therefore bitwise the same whatever lies beside it. The
// gradient keeps nothing of the forward pass: it computes the states at the beginnings of chunks again, in its workspace, because all
// states of a layer take more memory than the layer's other activations.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// The extents of a delta rule, named as in the legend at the top.
struct DeltaShape {
  i64 B, T, J, H, K, V;
};

/// The inputs of a delta rule, or their gradients: q and k[B, T, J * K], v[B, T, H * V], a and b[B, T, H] are views of any strides whose
/// last axis is contiguous; the parameters [H] are contiguous. All inputs have one dtype.
struct DeltaTensors {
  Tensor q_BTX, k_BTX, v_BTY, a_BTH, b_BTH, a_log_H, dt_bias_H;
};

struct DeltaOptions {
  i64 key_heads = 1;      // J
  bool normalize = true;  // each head's q and k are multiplied by 1 / sqrt(sum of squares + 1e-6)
  Tensor positions_BT;    // int32: each element's position in its document, from 0; undefined if each row is one document
};

/// Returns the bytes of workspace that delta_rule() or its gradient needs on the current stream's device, or on the GPU that a meta device
/// imitates.
i64 delta_rule_workspace_bytes(const DeltaShape& shape, DType dtype);
i64 delta_rule_gradient_workspace_bytes(const DeltaShape& shape, DType dtype);

/// Computes o[B, T, H * V]. initial_BHKV is the state before the first position of each row, in wide_dtype of q; it is zero if undefined.
/// final_BHKV, if it is defined, receives the state after the last position, and may be initial_BHKV.
void delta_rule(const DeltaTensors& in, const DeltaOptions& options, const Tensor& initial_BHKV, const Tensor& o_BTY,
                const Tensor& final_BHKV, const Tensor& workspace);

/// Overwrites the gradients of delta_rule() without an initial and a final state. The gradients of q, k, v, a and b are views like the
/// inputs, of their dtype; those of the parameters are contiguous, in wide_dtype, and are not computed if their tensors are undefined.
void delta_rule_gradient(const DeltaTensors& in, const DeltaOptions& options, const Tensor& do_BTY, const DeltaTensors& gradients,
                         const Tensor& workspace);

namespace cuda {
decltype(kernels::delta_rule_workspace_bytes) delta_rule_workspace_bytes;
decltype(kernels::delta_rule_gradient_workspace_bytes) delta_rule_gradient_workspace_bytes;
decltype(kernels::delta_rule) delta_rule;
decltype(kernels::delta_rule_gradient) delta_rule_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
