// Any update rule on one tile in any state format: AdamW by its own kernel (adamw_tile.h), the others by the formulas of rules.h in one
// text for all formats. Where everything is f32 or f64 the arrays are updated where they lie; what is rounded (half weights, a split
// master, bf16 moments and gradients) goes row by row through f32 scratch, rounded as AdamW's is. The same promises as adamw_update_tile:
// the weight moves by the unrounded new state, the same bits on every instruction set, in place or not, however the tile is cut into parts.
#pragma once
#include "optim/adamw_tile.h"

namespace spillway::optim {

/// As adamw_update_tile, by the format's rule. `streaming` is a hint that AdamW alone takes.
void update_tile(const StateFormat& format, const TileOperands& tile, std::span<const TilePart> parts, const RoundingNoise& noise,
                 Isa isa = Isa::best, bool streaming = false);

}  // namespace spillway::optim
