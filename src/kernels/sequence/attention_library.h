// Answers what the start of a run needs to know about cuDNN's attention: whether this node can use it, and which of its engines the run
// uses. There are two implementations, attention_cudnn_cuda.cc and one for a build without CUDA. Thread-safe.
#pragma once
#include <string>

#include "kernels/sequence/attention.h"

namespace spillway::kernels {

/// The shape that all attention ops of a run have. attention.h explains the letters of the dimensions.
struct AttentionShape {
  i64 batch, length, heads, kv_heads, width;
  DType dtype;
  bool thirds = false;  // true if q, k and v are thirds of each row of one tensor, and so are their gradients; otherwise they are separate
  bool causal = true;
};

/// Returns why cuDNN cannot be used on a GPU of this compute capability (90 for Hopper), as one line that also says what to do. Returns an
/// empty string if it can be used.
std::string missing_attention_library(int compute_capability);

/// Returns what in `shape` cuDNN does not support, as a clause "expected ..., got ...". Returns an empty string if cuDNN supports the
/// shape.
std::string attention_shape_problem(const AttentionShape& shape);

/// Returns an upper bound, in bytes, of the workspace that cuDNN's backward pass needs. Memory plans reserve this many bytes.
i64 attention_library_bytes(const AttentionShape& shape);

/// Prepares cuDNN's plans for forward and backward on the GPU of the current stream. Returns a description of the plans for
/// the run's record: cuDNN's version, the GPU, and the engine and knobs of each direction. `chosen` may be such a description
/// from an earlier run. If it names this version and GPU, its engines are used; otherwise cuDNN chooses. Throws Error(refused)
/// if cuDNN needs more workspace than memory plans count, and Error(io) with cuDNN's message on any other failure.
std::string prepare_attention(const AttentionShape& shape, const std::string& chosen = "");

}  // namespace spillway::kernels
