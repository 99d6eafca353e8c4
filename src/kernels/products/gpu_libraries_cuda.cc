#include "base/error.h"
#include "kernels/products/blas_lt_cuda.h"
#include "kernels/products/gpu_libraries.h"

namespace spillway::kernels {

std::string missing_gpu_library() {
  try {
    blas_lt();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace spillway::kernels
