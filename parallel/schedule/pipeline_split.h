// Which blocks each stage of a pipeline gets: as even in time as can be, and none beyond its memory. Pure functions.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::parallel {

/// Of one block: seconds of its forward and backward on a micro-batch, and bytes that a rank holds for it. An embedding and a head count
/// like any other block.
struct BlockCost {
  double seconds = 0;
  i64 bytes = 0;
};

/// The first block of each stage, by dynamic programming over neighbouring blocks: the longest stage is as short as it can be, the others
/// then as even as they can be (least sum of squares), and of equal splits the one whose later stages have more blocks, since the first
/// stages hold more micro-batches. `stage_bytes`: of no stage more; 0: any. Throws Error(usage) where there are fewer blocks than stages,
/// Error(refused) where no split fits.
std::vector<u16> split_blocks(std::span<const BlockCost> blocks, i64 stages, i64 stage_bytes = 0);

/// "1,4,4,1", how many blocks each stage gets, as their first blocks. Throws Error(usage) unless there are as many numbers as stages, none
/// below 1, that sum up to the blocks.
std::vector<u16> parse_split(std::string_view text, i64 stages, i64 blocks);

}  // namespace spillway::parallel
