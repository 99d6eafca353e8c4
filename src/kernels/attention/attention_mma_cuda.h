// Attention on tensor cores: bf16 and f16 heads of 32 to 128 elements. Between attention_cuda.cu and the kernels.
#pragma once
#include "kernels/attention/attention_problem_cuda.h"

namespace spillway::kernels::attention_mma {

/// What a block of these kernels is sure to have: GPUs from compute capability 8.0 on give it.
constexpr int kLeastSharedBytes = 99 << 10;
/// What it can have on the device in force.
int shared_bytes();
/// Whether heads of this width are taken: multiples of 16, and what is narrower would be nearly all padding.
bool takes(DType dtype, i64 width);

/// H: BFloat16 or Float16.
template <class H>
void attend(const attention_problem::Forward<H>& f);
/// f.delta is there.
template <class H>
void gradients(const attention_problem::Backward<H>& f);

}  // namespace spillway::kernels::attention_mma
