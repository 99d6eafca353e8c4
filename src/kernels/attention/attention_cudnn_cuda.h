// Attention by cuDNN, where it is asked for. Between attention_cuda.cu and cuDNN's graphs; plans are made once in a process and kept.
// Included by kernels/*_cuda.* alone. Thread-safe.
#pragma once
#include "kernels/attention/attention.h"

namespace spillway::kernels::attention_cudnn {

/// Heads that cuDNN is given: bf16 and f16 of a multiple of 8 up to 128 elements, of as many queries as keys, and more than one (of a
/// single one its 9.28 ends the process); the rest is ours.
bool takes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library);

/// The bounds of cudnn_graph_cuda.h: of no GPU and version in particular.
i64 workspace_bytes(const Shape& q, const Shape& k, DType dtype);
i64 gradient_workspace_bytes(const Shape& q, const Shape& k, DType dtype);

/// As kernels::attention and its gradient, without dropout; delta included in the workspace. Error(io) in cuDNN's words, Error(refused)
/// where it wants more workspace than there is.
void attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& out, const Tensor& lse,
            const Tensor& workspace);
void gradients(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
               const AttentionMask& mask, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& workspace);

}  // namespace spillway::kernels::attention_cudnn
