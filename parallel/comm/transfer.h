// The copies and reductions that carry out a collective or message when every member's buffers can be read directly: a range copied to
// others, or the same range of several ranks reduced into others. Each makes one pass: what is read is written to all targets while it is
// in the caches. Plain values; thread-safe.
#pragma once
#include <span>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/comm/ordered_sum.h"

namespace spillway::parallel {

/// Size from which results are written past the caches: other data passes through the second-level cache before such a result is read
/// again.
constexpr i64 kPastCachesBytes = 2 * kMiB;

/// A copy if `from` has one entry; a reduction in the order of `from` if it has several. A target may be one of the sources; otherwise
/// nothing may overlap.
struct Transfer {
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  i64 elems = 0;
  DType dtype = DType::uint8;
  Reduction reduction = Reduction::sum;

  /// Returns how to write the results: past the caches if they are large and none of them is also an operand.
  Stores stores() const;
};

/// Returns all transfers of a collective, given the calls of all members, which must agree.
std::vector<Transfer> transfers_of(std::span<const Call> calls);

/// Carries out elements [begin, end) of a transfer. Sums of f32 and f64 follow ordered_sum.h, sums of i64 are modulo 2^64. A maximum is the
/// first of equal values, and a NaN wins. Throws Error(bug) for a reduction of another dtype.
void carry_out(const Transfer& transfer, i64 begin, i64 end, Stores stores);

}  // namespace spillway::parallel
