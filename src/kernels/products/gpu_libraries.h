// Checks whether this node has the NVIDIA libraries that the GPU kernels call. They are opened at run time. There are two implementations,
// for builds with CUDA and without; a build without CUDA needs no library. Thread-safe.
#pragma once
#include <string>

namespace spillway::kernels {

/// Returns an empty string if no library is missing that training needs. Otherwise returns one line that also says what to do.
std::string missing_gpu_library();

}  // namespace spillway::kernels
