// Attention on tensor cores for bf16 and f16 heads of 32 to 128 elements: the layer between attention_cuda.cu and the kernels.
#pragma once
#include "kernels/attention/attention_problem_cuda.h"

namespace spillway::kernels::attention_mma {

/// Shared memory, in bytes, that every block of these kernels can have on GPUs from compute capability 8.0 on.
constexpr int kLeastSharedBytes = 99 << 10;
/// Returns the shared memory that a block can have on the current device, in bytes.
int shared_bytes();
/// Returns whether these kernels support heads of this width: multiples of 16 from 32 on, since narrower heads would be nearly all padding.
bool takes(DType dtype, i64 width);

/// Computes the forward pass. H is BFloat16 or Float16.
template <class H>
void attend(const attention_problem::Forward<H>& f);
/// Computes the gradients; f.delta must have been computed.
template <class H>
void gradients(const attention_problem::Backward<H>& f);

}  // namespace spillway::kernels::attention_mma
