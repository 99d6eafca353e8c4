// cuDNN's attention, as who starts a run sees it: whether this node has it, and which of its engines the run takes. Two versions:
// attention_cudnn_cuda.cc, and one of a build without CUDA. Thread-safe.
#pragma once
#include <string>

#include "kernels/attention/attention.h"

namespace spillway::kernels {

/// Of all attention of a run. Legend as attention.h.
struct AttentionShape {
  i64 batch, length, heads, kv_heads, width;
  DType dtype;
  bool thirds = false;  // q, k and v lie in one tensor, row by row beside each other, and their gradients in another; else each in its own
  bool causal = true;
};

/// Why cuDNN cannot be asked on a GPU of this compute capability (90 for Hopper): one line with the cure; empty where it can.
std::string missing_attention_library(int compute_capability);

/// What `shape` keeps cuDNN from: a clause, "expected ..., got ..."; empty where it is taken.
std::string attention_shape_problem(const AttentionShape& shape);

/// Workspace of its backward as plans of memory count it, the most that it may want.
i64 attention_library_bytes(const AttentionShape& shape);

/// cuDNN's plans for forward and backward, made ready on the stream in force's GPU, and what they are, for the record of a run: version,
/// GPU, and the engine and knobs of each direction. `chosen`: such a record, whose engines are taken where it is of this version and GPU;
/// they are the library's choice otherwise. Error(refused) where it wants more workspace than plans of memory count; Error(io) in its
/// words.
std::string prepare_attention(const AttentionShape& shape, const std::string& chosen = "");

}  // namespace spillway::kernels
