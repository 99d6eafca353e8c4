// Computes any update rule on one tile (16,384 elements) in any state format. AdamW has its own kernel (adamw_tile.h); the other rules
// use the formulas of rules.h, with one implementation for all formats. Arrays of f32 or f64 are updated directly; rounded formats
// (half-precision weights, a split master, bf16 moments and gradients) pass row by row through f32 scratch memory and are rounded as
// in AdamW. The guarantees are those of adamw_update_tile: the weight is updated with the new state as it is before rounding, and the
// bits depend neither on the instruction set, nor on whether the update is in place, nor on how the tile is cut into parts.
#pragma once
#include "optim/adamw_tile.h"

namespace spillway::optim {

/// Updates a tile as adamw_update_tile does, but with the format's rule. `streaming` is a hint that only AdamW uses.
void update_tile(const StateFormat& format, const TileOperands& tile, std::span<const TilePart> parts, const RoundingNoise& noise,
                 Isa isa = Isa::best, bool streaming = false);

}  // namespace spillway::optim
