// Chooses which blocks each stage of a pipeline gets, so that the stages take about equal time and none needs more memory than allowed.
// Pure functions.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::parallel {

/// The costs of one block are the seconds of its forward and backward for one micro-batch, and the bytes that a rank holds for it. The
/// embedding and the head are blocks like any other.
struct BlockCost {
  double seconds = 0;
  i64 bytes = 0;
};

/// Returns the first block of each stage, found by dynamic programming. The longest stage is as short as possible. Among such
/// splits, the stages are as even as possible (smallest sum of squares). Among equally good splits, later stages get more blocks,
/// because the first stages hold more micro-batches. `stage_bytes` limits the bytes of every stage; 0 means no limit. Throws
/// Error(usage) if there are fewer blocks than stages, and Error(refused) if no split stays within the limit.
std::vector<u16> split_blocks(std::span<const BlockCost> blocks, i64 stages, i64 stage_bytes = 0);

/// Parses a text such as "1,4,4,1", which says how many blocks each stage gets. Returns the first block of each stage. Throws Error(usage)
/// unless there is one number for each stage, no number is below 1, and the numbers add up to the number of blocks.
std::vector<u16> parse_split(std::string_view text, i64 stages, i64 blocks);

}  // namespace spillway::parallel
