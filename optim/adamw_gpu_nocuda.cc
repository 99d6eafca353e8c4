#include "base/error.h"
#include "optim/adamw_gpu.h"

namespace spillway::optim {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::bug, "[adamw] expected a build with CUDA for optimizer state on a GPU, got one without");
}

}  // namespace

void adamw_update_tiles_on_gpu(const StateFormat&, const TileOperands&, i64, std::span<const TilePart>, const RoundingNoise&) { refuse(); }
void tile_square_sums_on_gpu(const std::byte*, DType, i64, double*) { refuse(); }

}  // namespace spillway::optim
