// The global gradient norm in an order that depends on nothing but the flat layout: within a tile of 16384 elements element i goes to lane
// i mod 64 in fp64 (fp32 squares are exact in fp64), lanes fold 32, 16, …, 1; tile sums are added in (bucket, tile) order by the caller.
// The same bits on every instruction set. A short last tile is as if padded with zeros.
#pragma once
#include <span>

#include "base/types.h"
#include "optim/isa.h"
#include "tensor/dtype.h"

namespace spillway::optim {

constexpr i64 kTileElems = 16384;
constexpr i64 kNormLanes = 64;

/// Sum of squares of one tile (at most kTileElems elements, else Error(bug)); NaN and infinity pass through.
double tile_square_sum(std::span<const float> tile, Isa isa = Isa::best);
double tile_square_sum(std::span<const double> tile, Isa isa = Isa::best);
double tile_square_sum(std::span<const BFloat16> tile, Isa isa = Isa::best);

/// min(1, clip / (norm + 1e-6)), 1 when clip is 0; in fp64. A norm that is NaN gives NaN, an infinite one 0: such a step is skipped.
double clip_factor(double norm, double clip);

}  // namespace spillway::optim
