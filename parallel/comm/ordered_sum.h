// Defines the order in which numbers of several ranks are added; all communicators use it. Ranks are taken in groups of 8 consecutive
// ranks. Within a group the numbers are added in rank order, ((r0 + r1) + r2) + …, and then the sums of the groups are added in order. Each
// addition is rounded in the elements' own type. So a sum is bitwise the same for every communicator and for every way to cut the elements
// into pieces. If 8 ranks of a group are on one node, their sum can be made before it is sent on. Thread-safe: no state.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway::parallel {

inline constexpr i64 kSumGroupRanks = 8;

/// States how the sum is written: through the caches, or past them, which is faster if nobody reads the result soon. Writing past the
/// caches is not allowed if the result is also one of the operands.
enum class Stores : u8 { cached, past_caches };

/// For each i in [begin, end), computes sum[i] as the ordered sum of ranks[0][i], ranks[1][i] …, in one pass over the numbers of all ranks.
/// There must be at least one rank. `sum` may be one of `ranks`. Addresses must be aligned to whole elements.
void ordered_sum(std::span<const float* const> ranks, float* sum, i64 begin, i64 end, Stores stores = Stores::cached);
void ordered_sum(std::span<const double* const> ranks, double* sum, i64 begin, i64 end, Stores stores = Stores::cached);

}  // namespace spillway::parallel
