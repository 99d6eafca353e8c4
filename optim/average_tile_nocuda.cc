#include "base/error.h"
#include "optim/average_tile.h"

namespace spillway::optim {

void average_tiles_on_gpu(const StateFormat&, const AverageOperands&, i64, double) {
  throw Error(ErrorCode::bug, "[average] expected a build with CUDA for optimizer state on a GPU, got one without");
}

}  // namespace spillway::optim
