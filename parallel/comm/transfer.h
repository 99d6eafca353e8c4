// Carries out a collective or a message by copies and reductions, when every member's buffers can be read directly. A transfer copies a
// range of one rank's data to other ranks, or reduces the same range of several ranks and writes the result to some ranks. It makes one
// pass over the data: each value is written to all targets while it is still in the caches. Plain values; thread-safe.
#pragma once
#include <span>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/comm/ordered_sum.h"

namespace spillway::parallel {

/// Results of at least this size are written past the caches. They would not stay in the second-level cache
/// until they are read again, because the rest of the data passes through it first.
constexpr i64 kPastCachesBytes = 2 * kMiB;

/// Describes a copy if `from` has one entry, and a reduction in the order of `from` if it has
/// several. A target may be one of the sources; otherwise no two buffers may overlap.
struct Transfer {
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  i64 elems = 0;
  DType dtype = DType::uint8;
  Reduction reduction = Reduction::sum;

  /// Returns how to write the results: past the caches if they are large and none of them is also an operand.
  Stores stores() const;
};

/// Returns all transfers of a collective. The calls of all members must agree (disagreement()).
std::vector<Transfer> transfers_of(std::span<const Call> calls);

/// Carries out elements [begin, end) of a transfer. Sums of f32 and f64 follow ordered_sum.h; sums of i64 are modulo 2^64. A maximum is NaN
/// if one of the values is; of equal values, such as 0 and -0, it is the first. Throws Error(bug) for a reduction of another dtype.
void carry_out(const Transfer& transfer, i64 begin, i64 end, Stores stores);

}  // namespace spillway::parallel
