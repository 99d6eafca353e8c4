// Says whether this build contains GPU kernels. Each GPU kernel has the same name as the CPU kernel, inside the namespace `cuda`. The CPU
// kernel's function calls it if the tensors are on a GPU. Included only by *.cc files of kernels.
#pragma once

namespace spillway::kernels {

inline constexpr bool kHasCuda = SPILLWAY_HAS_CUDA;

}  // namespace spillway::kernels

/// If the tensor is on a GPU, this macro calls the GPU kernel (`call` is its name and arguments) and returns from the function in which
/// the macro is used.
#define SPILLWAY_RETURN_IF_CUDA(tensor, call)           \
  if constexpr (::spillway::kernels::kHasCuda) {        \
    if ((tensor).device().is_cuda()) return cuda::call; \
  }                                                     \
  static_assert(true)
