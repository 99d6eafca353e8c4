// Attention with cuDNN, which a user requests with --attention cudnn. These functions are called by attention_cuda.cu and build on cuDNN's
// graphs (cudnn_graph_cuda.h). cuDNN's plans are made once per process and kept. Included only by kernels/*/*_cuda.*. Thread-safe.
#pragma once
#include "kernels/sequence/attention.h"

namespace spillway::kernels::attention_cudnn {

/// Returns whether cuDNN computes attention of these shapes. `library` must request cuDNN, the dtype must be bf16
/// or f16, the head width a multiple of 8 and at most 128, and there must be as many queries as keys and more
/// than one query (cuDNN 9.28 ends the process if there is only one). Our own kernels compute all other cases.
bool takes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library);

/// workspace_bytes() and gradient_workspace_bytes() return an upper bound of the workspace in bytes that cuDNN's attention needs
/// (cudnn_graph_cuda.h). The bound holds for every GPU and every version of cuDNN.
i64 workspace_bytes(const Shape& q, const Shape& k, DType dtype);
i64 gradient_workspace_bytes(const Shape& q, const Shape& k, DType dtype);

/// attend() and its gradient function compute kernels::attention and its gradient, without dropout.
/// The workspace of the gradient also holds delta. They throw Error(io) with cuDNN's message if
/// cuDNN fails, and Error(refused) if cuDNN needs more workspace than memory plans count.
void attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& out, const Tensor& lse,
            const Tensor& workspace);
void gradients(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
               const AttentionMask& mask, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& workspace);

}  // namespace spillway::kernels::attention_cudnn
