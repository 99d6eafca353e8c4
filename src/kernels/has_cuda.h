// Whether this build contains GPU kernels. Each has the same name as its CPU kernel, inside the namespace `cuda`; the CPU kernel's function
// calls it if the tensors are a GPU's. Included only by kernels/*.cc.
#pragma once

namespace spillway::kernels {

inline constexpr bool kHasCuda = SPILLWAY_HAS_CUDA;

}  // namespace spillway::kernels
