// AdamW and the gradient norm on a GPU: the bits of adamw_update_tile and tile_square_sum, for many tiles at once. Two versions, one of
// which throws Error(bug): a build without CUDA has no tensors there. Work is put on the queue of the stream in force, which must be that
// of the GPU whose memory the operands are; Error(io) when the driver refuses it.
#pragma once
#include "optim/adamw_tile.h"

namespace spillway::optim {

/// `first`: of the first of `tiles` tiles; those of each operand stand one after the other. `parts` ascend over all of them and end at
/// their end. `noise.first_element` is the first tile's. In place, or into other memory altogether.
void adamw_update_tiles_on_gpu(const StateFormat& format, const TileOperands& first, i64 tiles, std::span<const TilePart> parts,
                               const RoundingNoise& noise);

/// sums[t] of tile t: f32, f64 or bf16, `sums` in the GPU's memory.
void tile_square_sums_on_gpu(const std::byte* gradient, DType dtype, i64 tiles, double* sums);

}  // namespace spillway::optim
