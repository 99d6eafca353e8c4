// Says whether this build contains GPU kernels. Each GPU kernel has the same name as the CPU kernel, inside the namespace `cuda`. The CPU
// kernel's function calls it if the tensors are on a GPU. Included only by *.cc files of kernels.
#pragma once

namespace spillway::kernels {

inline constexpr bool kHasCuda = SPILLWAY_HAS_CUDA;

}  // namespace spillway::kernels

/// If the tensor is on a GPU, returns from the function that this stands in, after calling the kernel for GPUs: `call` is its name and
/// arguments.
#define SPILLWAY_RETURN_IF_CUDA(tensor, call)           \
  if constexpr (::spillway::kernels::kHasCuda) {        \
    if ((tensor).device().is_cuda()) return cuda::call; \
  }                                                     \
  static_assert(true)
