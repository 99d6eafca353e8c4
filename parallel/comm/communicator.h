// Communication between ranks: collectives, point-to-point messages, and what happens when a rank ends. A Communicator is one rank's
// endpoint in one group of ranks; ranks are threads of one process (local) or processes connected by sockets or MPI. All operations are
// asynchronous: a call returns at once, and its buffers belong to the communicator until its Event. All members must call the same
// collectives in the same order. Messages match by (sender, tag) in the order sent, whatever collectives run. An endpoint is called by one
// thread at a time; different endpoints, also of the same group, are independent.
//
// A call that is wrong by itself (parts that do not fit the buffers, a dtype that the operation does not support) throws Error(bug) at once
// and does not count as a call. If the calls of several members are not the same collective, it fails on all of them with Error(bug); the
// next collective may succeed again.
//
// If a member dies, or does not call an operation within the time-out, the Event of every operation that needs it fails with Error(peer),
// which names its rank, the operation and the time waited; an operation never hangs. After that, the group and every group split from it
// are unusable: every later call fails in the same way, with a failed Event (split throws). The time-out counts from the moment at which
// the member is needed, or from its last call in any of these groups if that is later, because a member that still makes calls is late, not
// dead. A member that called works_alone() counts as alive until its next call, for at most kLongestWork time-outs. Operations that all
// members have entered by then may still be completed.
//
// Destroying an endpoint means that the member leaves. It still takes part in every operation that all members have entered. If another
// member waits for it, then or later, it counts as dead. The events it has returned stay valid, and its buffers belong to their owner
// again.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/event.h"
#include "tensor/dtype.h"

namespace spillway::parallel {

/// How a whole is partitioned among the members: member r's part is [begins[r], begins[r + 1]), ascending from 0. Parts may be empty and
/// unequal. Boundaries count bytes for operations that copy, and elements for operations that sum.
using Parts = std::vector<i64>;

enum class Reduction : u8 { sum, max };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sends every member's part to all members. `mine` may be its own place in `all`.
  virtual Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Parts bytes) = 0;
  /// Gives member r the sum over all members of part r. Elements are f32 or f64, added in that type in a fixed order (ordered_sum.h), so
  /// every communicator gives the same bits. `mine` may be its own place in `all`; the rest of `all` is unchanged. Addresses must be
  /// aligned to whole elements.
  virtual Event reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType dtype, Parts elems) = 0;
  /// Reduces in place, to the same bits on every member. Types are f32, f64 (summed in the order above) and i64 (summed modulo 2^64). A NaN
  /// counts as the maximum.
  virtual Event all_reduce(std::span<std::byte> values, DType dtype, Reduction reduction) = 0;
  /// Sends the root's bytes to all members, in place.
  virtual Event broadcast(std::span<std::byte> bytes, int root) = 0;
  virtual Event barrier() = 0;

  /// Messages need no rendezvous: a send may complete before its receive is posted, or only afterwards. Both sizes must be equal; otherwise
  /// both sides fail with Error(bug).
  virtual Event send(std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual Event receive(std::span<std::byte> bytes, int from, int tag) = 0;

  /// Returns the group of the members of equal `color`, in order of their rank here; waits for all members. The new groups run concurrently
  /// with each other and with this one.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// Declares that this rank cannot go on. Everything that waits for another rank, and all later calls, fail on every member with
  /// Error(peer) quoting `what`, also in groups split from this one. May be called from any thread.
  virtual void abort(const std::string& what) noexcept = 0;

  /// Announces that until its next call in any of these groups this rank does long work, such as reading a model, that needs no other rank.
  /// The others wait for it.
  virtual void works_alone() = 0;
};

/// Longest time that a rank may work alone, in time-outs.
constexpr double kLongestWork = 60;

}  // namespace spillway::parallel
