// The one order in which numbers of several ranks are added, whichever communicator carries them. Within groups of 8 consecutive ranks they
// are added in rank order, ((r0 + r1) + r2) + …, then the groups' sums in order, each addition rounded in the elements' own type. So a sum
// has the same bits for every communicator and for every cut of the elements into pieces, and groups of 8 on one node may be summed before
// their sums travel. Thread-safe: no state.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway::parallel {

inline constexpr i64 kSumGroupRanks = 8;

/// States how the sum is written: through the caches, or past them if nobody reads the result soon (not allowed if the result is one of its
/// operands).
enum class Stores : u8 { cached, past_caches };

/// Computes sum[i] = the ordered sum of ranks[0][i], ranks[1][i] … for i in [begin, end), in one pass over all ranks, of which there is at
/// least one. `sum` may be one of `ranks`. Addresses must be aligned to whole elements.
void ordered_sum(std::span<const float* const> ranks, float* sum, i64 begin, i64 end, Stores stores = Stores::cached);
void ordered_sum(std::span<const double* const> ranks, double* sum, i64 begin, i64 end, Stores stores = Stores::cached);

}  // namespace spillway::parallel
