// Whether this node has the NVIDIA libraries that the GPU kernels call; they are opened at run time. There are two versions: a build
// without CUDA needs no library. Thread-safe.
#pragma once
#include <string>

namespace spillway::kernels {

/// Returns one line with the cure if a library that training needs is missing, else an empty string.
std::string missing_gpu_library();

}  // namespace spillway::kernels
