// Tells whether this build contains GPU kernels. Each GPU kernel has the name of its CPU kernel, inside the namespace
// `cuda`. The CPU kernel's function calls the GPU kernel if the tensors are on a GPU. Only kernels/*.cc include this header.
#pragma once

namespace spillway::kernels {

inline constexpr bool kHasCuda = SPILLWAY_HAS_CUDA;

}  // namespace spillway::kernels
