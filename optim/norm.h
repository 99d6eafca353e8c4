// The global gradient norm, summed in an order that depends on nothing but how the gradient is divided into tiles. Within a tile of 16384
// elements, element i is added to partial sum (lane) i mod 64 in fp64 (fp32 squares are exact in fp64), and the 64 lanes are then added in
// halves of 32, 16, …, 1. The caller adds the tiles' sums in (bucket, tile) order; a bucket is a run of tiles that are updated together.
// The result is bitwise the same on every instruction set. A short last tile counts as if padded with zeros.
#pragma once
#include <span>

#include "base/types.h"
#include "optim/isa.h"
#include "tensor/dtype.h"

namespace spillway::optim {

constexpr i64 kTileElems = 16384;
constexpr i64 kNormLanes = 64;

/// Returns the sum of squares of one tile. NaN and infinity propagate. Throws Error(bug) on more than kTileElems elements.
double tile_square_sum(std::span<const float> tile, Isa isa = Isa::best);
double tile_square_sum(std::span<const double> tile, Isa isa = Isa::best);
double tile_square_sum(std::span<const BFloat16> tile, Isa isa = Isa::best);

/// Returns the factor that clips the gradient: min(1, clip / (norm + 1e-6)) in fp64, or 1 if clip is 0. A NaN norm gives NaN, an infinite
/// norm gives 0; in both cases the caller skips the step.
double clip_factor(double norm, double clip);

}  // namespace spillway::optim
