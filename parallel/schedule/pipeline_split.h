// Chooses which blocks each stage of a pipeline gets, so that stages take about equal time and none exceeds its memory. Pure functions.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::parallel {

/// The cost of one block: seconds of its forward and backward on a micro-batch, and bytes that a rank holds for it. Embedding and head
/// count like any other block.
struct BlockCost {
  double seconds = 0;
  i64 bytes = 0;
};

/// Returns the first block of each stage, found by dynamic programming over neighbouring blocks. The longest stage is as short as possible,
/// then the others are as even as possible (least sum of squares). Among equal splits it takes the one whose later stages have more blocks,
/// since the first stages hold more micro-batches. `stage_bytes`: limit for every stage; 0 means no limit. Throws Error(usage) if there are
/// fewer blocks than stages, and Error(refused) if no split fits.
std::vector<u16> split_blocks(std::span<const BlockCost> blocks, i64 stages, i64 stage_bytes = 0);

/// Parses a text such as "1,4,4,1", which says how many blocks each stage gets, and returns the first block of each stage. Throws
/// Error(usage) unless there is one number per stage, none below 1, and their sum is the number of blocks.
std::vector<u16> parse_split(std::string_view text, i64 stages, i64 blocks);

}  // namespace spillway::parallel
