#include "base/error.h"
#include "optim/average_tile.h"

namespace spillway::optim {

void average_tiles_on_gpu(const StateFormat&, const AverageOperands&, i64, double) {
  throw Error(ErrorCode::bug, "[average] this build has no CUDA: no state lies on a GPU");
}

}  // namespace spillway::optim
