// What a collective or a message comes down to where every buffer can be read: a place copied to others, or the same place of several
// ranks reduced into others. One pass: what is read is written to all its targets while it is in the caches. Values; thread-safe.
#pragma once
#include <span>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/comm/ordered_sum.h"

namespace spillway::parallel {

/// Results this large are not read again before other data has passed through the second-level cache.
constexpr i64 kPastCachesBytes = 2 * kMiB;

/// One `from`: a copy. Several: a reduction in this order. A target may be one of the sources; else nothing overlaps.
struct Transfer {
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  i64 elems = 0;
  DType dtype = DType::uint8;
  Reduction reduction = Reduction::sum;

  /// Where the results go: past the caches when they are larger than what caches are for, and not their own operands.
  Stores stores() const;
};

/// All that moves for a collective, from the calls of all members; they agree.
std::vector<Transfer> transfers_of(std::span<const Call> calls);

/// Elements [begin, end) of it. Sums of f32 and f64 as ordered_sum.h says, of i64 modulo 2^64; a maximum is the first of equal ones, and a
/// NaN wins. Error(bug) for the reduction of another type.
void carry_out(const Transfer& transfer, i64 begin, i64 end, Stores stores);

}  // namespace spillway::parallel
