// Whether this build has the kernels of GPUs: each stands in the namespace `cuda` under its own name, and is called by it when the tensors
// are a GPU's. Included by kernels/*.cc alone.
#pragma once

namespace spillway::kernels {

inline constexpr bool kHasCuda = SPILLWAY_HAS_CUDA;

}  // namespace spillway::kernels
