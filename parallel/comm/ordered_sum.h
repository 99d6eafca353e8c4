// The one order in which numbers of several ranks are added, whoever carries them: inside groups of 8 consecutive ranks in rank order,
// ((r0 + r1) + r2) + …, then the groups' sums in order, each addition rounded in the elements' own type. So the sum has the same bits for
// every communicator and every cut of the elements into pieces, and groups of 8 may be summed where they lie (one node) before they travel.
// Thread-safe: no state.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway::parallel {

inline constexpr i64 kSumGroupRanks = 8;

/// Where the sum is written: into the caches, or past them for results that nobody reads soon (never for one that is its own operand).
enum class Stores : u8 { cached, past_caches };

/// sum[i] = of ranks[0][i], ranks[1][i] … for i in [begin, end); one pass over all ranks, at least one. `sum` may be one of `ranks`.
/// Addresses are those of whole elements.
void ordered_sum(std::span<const float* const> ranks, float* sum, i64 begin, i64 end, Stores stores = Stores::cached);
void ordered_sum(std::span<const double* const> ranks, double* sum, i64 begin, i64 end, Stores stores = Stores::cached);

}  // namespace spillway::parallel
