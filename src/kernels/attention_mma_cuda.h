// Attention on tensor cores: bf16 heads of 32 to 128 elements. Between attention_cuda.cu and the kernels.
#pragma once
#include "kernels/attention_problem_cuda.h"

namespace spillway::kernels::attention_mma {

/// Whether heads of this width are taken by a GPU with the shared memory that the device in force has: multiples of 16, and what is
/// narrower would be nearly all padding.
bool takes(DType dtype, i64 width);

void attend(const attention_problem::Forward<BFloat16>& f);
/// f.delta is there.
void gradients(const attention_problem::Backward<BFloat16>& f);

}  // namespace spillway::kernels::attention_mma
