// Attention with cuDNN, used on request: the layer between attention_cuda.cu and cuDNN's graphs. Plans are made once per process and kept.
// Included only by kernels/*_cuda.*. Thread-safe.
#pragma once
#include "kernels/attention/attention.h"

namespace spillway::kernels::attention_cudnn {

/// Returns whether cuDNN computes such heads: bf16 and f16 with a multiple of 8 elements, at most 128, as many queries as keys, and more
/// than one query (for a single one cuDNN 9.28 ends the process). All other heads use our kernels.
bool takes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library);

/// Return the workspace bounds of cudnn_graph_cuda.h, which hold for every GPU and version.
i64 workspace_bytes(const Shape& q, const Shape& k, DType dtype);
i64 gradient_workspace_bytes(const Shape& q, const Shape& k, DType dtype);

/// Like kernels::attention and its gradient, but without dropout; the workspace includes delta. Throw Error(io) with cuDNN's message, or
/// Error(refused) if cuDNN wants more workspace than there is.
void attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& out, const Tensor& lse,
            const Tensor& workspace);
void gradients(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
               const AttentionMask& mask, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& workspace);

}  // namespace spillway::kernels::attention_cudnn
