// Says whether this build contains GPU kernels. Each GPU kernel has the same name as the CPU kernel, inside the namespace `cuda`. The CPU
// kernel's function calls it if the tensors are on a GPU. Included only by kernels/*.cc.
#pragma once

namespace spillway::kernels {

inline constexpr bool kHasCuda = SPILLWAY_HAS_CUDA;

}  // namespace spillway::kernels
