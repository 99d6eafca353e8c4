// AdamW and the gradient norm on a GPU, for many tiles (of 16,384 elements) at once. The results are bitwise those of adamw_update_tile and
// tile_square_sum on a CPU. There are two implementations; the one for builds without CUDA, which have no tensors on a GPU, throws
// Error(bug). Work is queued on the current stream, which must belong to the GPU whose memory holds the operands. Throws Error(io) if the
// driver refuses the launch.
#pragma once
#include "optim/adamw_tile.h"

namespace spillway::optim {

/// Updates `tiles` tiles. `first` points to the first tile; the tiles of each operand lie one after the other. `parts`
/// ascend over all tiles and end where the last tile ends. `noise.first_element` refers to the first tile. The new
/// weights and state either replace the old ones in place or lie in memory that does not overlap the old ones.
void adamw_update_tiles_on_gpu(const StateFormat& format, const TileOperands& first, i64 tiles, std::span<const TilePart> parts,
                               const RoundingNoise& noise);

/// Writes the sum of squares of tile t to sums[t]. The gradient is f32, f64 or bf16; `sums` lies in the GPU's memory.
void tile_square_sums_on_gpu(const std::byte* gradient, DType dtype, i64 tiles, double* sums);

}  // namespace spillway::optim
