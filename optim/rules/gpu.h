// Computes any update rule on a GPU, for many tiles (of 16,384 elements) at once, with bitwise the results of update_tile (tile.h). There
// are two implementations, with and without CUDA, as for adamw_gpu.h.
#pragma once
#include "optim/adamw_gpu.h"

namespace spillway::optim {

/// Updates tiles as adamw_update_tiles_on_gpu does, but with the format's rule.
void update_tiles_on_gpu(const StateFormat& format, const TileOperands& first, i64 tiles, std::span<const TilePart> parts,
                         const RoundingNoise& noise);

}  // namespace spillway::optim
