#include "base/error.h"
#include "parallel/device/gradient_rounding.h"

namespace spillway::parallel {

void round_gradient_on_gpu(std::byte*, DType, i64) {
  throw Error(ErrorCode::bug, "[gradient rounding] expected a build with CUDA for gradients on a GPU, got one without CUDA");
}

}  // namespace spillway::parallel
