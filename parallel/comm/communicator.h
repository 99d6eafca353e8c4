// Ranks talking to each other: collectives, messages, and the end of a rank. One Communicator is one rank's end of one group of ranks;
// behind it are threads of one process (local), sockets or MPI. Everything is asynchronous: a call returns at once, its buffers belong to
// the communicator until its Event. All members call the same collectives in the same order; messages match by (sender, tag) in the order
// sent, whatever collectives run. One thread at a time calls an end; different ends, of the same group too, are independent.
//
// A call that is wrong by itself (parts that do not fit the buffers, a type that the operation does not know) throws Error(bug) at once and
// counts as none. Calls of several members that are not one collective fail on all of them with Error(bug); the next may be right again.
//
// A member that dies, or does not come within the time-out, makes the Event of every operation that needs it fail with Error(peer) naming
// its rank, the operation and how long it was waited for; never a hang. After that the group, and every group split from it, is of no use:
// every later call fails alike, with a failed Event (split throws). The time-out counts from the moment from which the member is needed, or
// from its last call in any of these groups if that is later: who is heard of is late, not dead. Who said that it works alone is heard of
// until its next call, for kLongestWork time-outs at the most. What all members have come to by then may still be carried to its end.
//
// An end that is destroyed is a member that left. It takes part to the end in what all came to; if somebody waits for it, then or later, it
// has died. Its events stay good; its buffers are its own again.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/event.h"
#include "tensor/dtype.h"

namespace spillway::parallel {

/// How a whole is dealt to the members: member r's part is [begins[r], begins[r + 1]), ascending from 0. Parts may be empty and unequal.
/// In bytes where bytes move, in elements where they are summed.
using Parts = std::vector<i64>;

enum class Reduction : u8 { sum, max };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Every part from its member to all. `mine` may be its own place in `all`.
  virtual Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Parts bytes) = 0;
  /// Member r gets the sum over members of part r: elements of f32 or f64 added in that type in a fixed order (ordered_sum.h), the same
  /// bits for every communicator. `mine` may be its own place in `all`; the rest of `all` stays as it was. Addresses are whole elements'.
  virtual Event reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType dtype, Parts elems) = 0;
  /// In place, the same bits on every member: f32, f64 (sums ordered as above) or i64 (sums modulo 2^64). A NaN is the maximum.
  virtual Event all_reduce(std::span<std::byte> values, DType dtype, Reduction reduction) = 0;
  /// To all from `root`, in place.
  virtual Event broadcast(std::span<std::byte> bytes, int root) = 0;
  virtual Event barrier() = 0;

  /// A message needs no meeting: send may be done before its receive is posted, or only then. Sizes must be equal: a receive of another
  /// size fails on both sides with Error(bug).
  virtual Event send(std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual Event receive(std::span<std::byte> bytes, int from, int tag) = 0;

  /// The members of equal `color`, in order of their rank here, as a group of their own; waits for all members. The groups run at the same
  /// time, beside this one too.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// This rank cannot go on: what waits for somebody and all that comes later fails on every member with Error(peer) quoting `what`, in the
  /// groups split from this one too. From any thread.
  virtual void abort(const std::string& what) noexcept = 0;

  /// What this rank does until its next call, in any of these groups, needs nobody and may take long, such as reading a model: the others
  /// wait for it.
  virtual void works_alone() = 0;
};

/// In time-outs: how long a rank may work alone.
constexpr double kLongestWork = 60;

}  // namespace spillway::parallel
