#include "kernels/products/gpu_libraries.h"

namespace spillway::kernels {

std::string missing_gpu_library() { return ""; }

}  // namespace spillway::kernels
