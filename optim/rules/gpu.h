// Any update rule on a GPU: computes the same bits as update_tile (tile.h), for many tiles at once. There are two implementations, as for
// adamw_gpu.h.
#pragma once
#include "optim/adamw_gpu.h"

namespace spillway::optim {

/// Does the same as adamw_update_tiles_on_gpu, with the format's rule.
void update_tiles_on_gpu(const StateFormat& format, const TileOperands& first, i64 tiles, std::span<const TilePart> parts,
                         const RoundingNoise& noise);

}  // namespace spillway::optim
