// cuDNN's attention as seen by the start of a run: whether this node can use it, and which of its engines the run takes. There are two
// versions, attention_cudnn_cuda.cc and one for a build without CUDA. Thread-safe.
#pragma once
#include <string>

#include "kernels/attention/attention.h"

namespace spillway::kernels {

/// The shape of all attention ops of a run. The legend is that of attention.h.
struct AttentionShape {
  i64 batch, length, heads, kv_heads, width;
  DType dtype;
  bool thirds = false;  // q, k and v are the thirds of each row of one tensor, and so are their gradients; else each is a tensor of its own
  bool causal = true;
};

/// Returns why cuDNN cannot be used on a GPU of this compute capability (90 for Hopper), in one line with the cure; empty if it can.
std::string missing_attention_library(int compute_capability);

/// Returns what in `shape` cuDNN does not support, as a clause "expected ..., got ..."; empty if it supports it.
std::string attention_shape_problem(const AttentionShape& shape);

/// Returns the largest workspace that its backward may want, in bytes, as memory plans count it.
i64 attention_library_bytes(const AttentionShape& shape);

/// Prepares cuDNN's plans for forward and backward on the current stream's GPU and returns a description of them for the run's record:
/// version, GPU, and the engine and knobs of each direction. `chosen` may be an earlier record; its engines are used if it names this
/// version and GPU, else the library chooses. Throws Error(refused) if cuDNN wants more workspace than memory plans count, and Error(io)
/// with its message otherwise.
std::string prepare_attention(const AttentionShape& shape, const std::string& chosen = "");

}  // namespace spillway::kernels
