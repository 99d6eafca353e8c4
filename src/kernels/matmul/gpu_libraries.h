// The libraries of NVIDIA's that the GPU's kernels call, opened at run time: whether this node has them. Two versions: a build without CUDA
// needs none. Thread-safe.
#pragma once
#include <string>

namespace spillway::kernels {

/// One line with the cure, or empty when all that training needs are there.
std::string missing_gpu_library();

}  // namespace spillway::kernels
