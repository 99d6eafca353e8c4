// Any update rule on a GPU: the bits of update_tile (tile.h), for many tiles at once. Two versions, as adamw_gpu.h has them.
#pragma once
#include "optim/adamw_gpu.h"

namespace spillway::optim {

/// As adamw_update_tiles_on_gpu, by the format's rule.
void update_tiles_on_gpu(const StateFormat& format, const TileOperands& first, i64 tiles, std::span<const TilePart> parts,
                         const RoundingNoise& noise);

}  // namespace spillway::optim
