// Checks whether this node has the NVIDIA libraries that the GPU kernels call, which are opened at run time. There
// are two implementations, for builds with CUDA and without; a build without CUDA needs no library. Thread-safe.
#pragma once
#include <string>

namespace spillway::kernels {

/// Returns one line that says which library that training needs is missing, and what to do. Returns an empty string if none is missing.
std::string missing_gpu_library();

}  // namespace spillway::kernels
