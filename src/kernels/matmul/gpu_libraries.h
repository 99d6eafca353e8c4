// Checks whether this node has the NVIDIA libraries that the GPU kernels call. They are opened at run time. There are two implementations,
// for builds with CUDA and without; a build without CUDA needs no library. Thread-safe.
#pragma once
#include <string>

namespace spillway::kernels {

/// Returns an empty string, or if a library that training needs is missing one line that also says what to do.
std::string missing_gpu_library();

}  // namespace spillway::kernels
