#include "optim/rules/gpu.h"

namespace spillway::optim {

void update_tiles_on_gpu(const StateFormat& format, const TileOperands& first, i64 tiles, std::span<const TilePart> parts,
                         const RoundingNoise& noise) {
  adamw_update_tiles_on_gpu(format, first, tiles, parts, noise);  // AdamW's function throws Error(bug) in a build without CUDA
}

}  // namespace spillway::optim
