// Attention on tensor cores for bf16 and f16 heads of 32 to 256 elements. attention_cuda.cu calls these functions, which launch the
// kernels.
#pragma once
#include "kernels/sequence/attention_problem_cuda.h"

namespace spillway::kernels::attention_mma {

/// The shared memory, in bytes, that a thread block can use on every GPU from compute capability 8.0 on.
constexpr int kLeastSharedBytes = 99 << 10;
/// Returns the shared memory, in bytes, that a thread block can have on the current GPU.
int shared_bytes();
/// Returns whether the tensor-core kernels support heads of this dtype and width. The width
/// must be a multiple of 16 and at least 32, since narrower heads would be nearly all padding.
bool takes(DType dtype, i64 width);

/// Returns the bytes of workspace of attend(). They are 0 unless there are so few queries, and so many keys, that the keys are split.
i64 workspace_bytes(const Shape& q, const Shape& k, DType dtype);
/// Computes attention's forward pass on tensor cores. H is BFloat16 or Float16.
template <class H>
void attend(const attention_problem::Forward<H>& f);
/// Computes attention's gradients on tensor cores; f.delta must have been computed before.
template <class H>
void gradients(const attention_problem::Backward<H>& f);

}  // namespace spillway::kernels::attention_mma
