// Defines communication between ranks: collectives, point-to-point messages, and what happens when a rank ends. A Communicator is one
// rank's endpoint in one group of ranks. Ranks are threads of one process (local) or processes connected by sockets or MPI. All
// operations are asynchronous: a call returns at once, and its buffers belong to the communicator until the call's Event is set. All
// members must call the same collectives in the same order. A send and a receive match if they name the same sender and tag; several
// with equal sender and tag match in the order of the calls, no matter which collectives run between. An endpoint is called by one
// thread at a time. Different endpoints, also of the same group, are independent.
//
// A call that is wrong by itself (parts that do not fit the buffers, a dtype that the operation does not support) throws Error(bug) at
// once and does not count as a call. If several members' calls do not form the same collective, the collective fails on all members
// with Error(bug); the next collective may succeed again.
//
// If a member dies, or does not call an operation within the time-out, the Event of every operation that needs this member fails with
// Error(peer), which names the member's rank, the operation and the time waited. An operation never hangs. After that, the group and
// every group split from it are unusable: every later call fails in the same way, with a failed Event (split throws). Operations that
// all members have entered by then may still be completed.
//
// The time-out counts from the moment at which the member is needed, or from the member's last call in any of these groups if that is
// later, because a member that still makes calls is late, not dead. A member that called works_alone() counts as alive until its next
// call, for at most kLongestWork time-outs.
//
// Destroying an endpoint means that the member leaves. The leaving member still takes part in every operation that all members have
// entered. If another member waits for it, then or later, it counts as dead. The events that the endpoint has returned stay valid, and
// the buffers of its calls belong to their owner again.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/event.h"
#include "tensor/dtype.h"

namespace spillway::parallel {

/// States how the whole data is partitioned among the members: member r's part is [begins[r], begins[r + 1]), ascending from 0.
/// Parts may be empty and unequal. Boundaries count bytes for operations that copy, and elements for operations that sum.
using Parts = std::vector<i64>;

enum class Reduction : u8 { sum, max };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sends every member's part to all members. `mine` may be the range of `all` that belongs to this member.
  virtual Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Parts bytes) = 0;
  /// Gives member r the sum over all members of part r. Elements are f32 or f64. They are added in that type in a fixed order
  /// (ordered_sum.h), so every communicator gives bitwise the same sums. `mine` may be the range of `all` that belongs to this member; the
  /// rest of `all` is unchanged. Addresses must be aligned to whole elements.
  virtual Event reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType dtype, Parts elems) = 0;
  /// Reduces in place. The results on all members are bitwise equal. Elements are f32 or f64 (summed in the order of reduce_scatter) or i64
  /// (summed modulo 2^64). For a maximum, a NaN counts as the largest value.
  virtual Event all_reduce(std::span<std::byte> values, DType dtype, Reduction reduction) = 0;
  /// Sends the root's bytes to all members, in place.
  virtual Event broadcast(std::span<std::byte> bytes, int root) = 0;
  virtual Event barrier() = 0;

  /// A send does not need to wait for its receive: it may complete before the receive is posted, or only afterwards. The send and the
  /// receive must have the same size; otherwise both fail with Error(bug).
  virtual Event send(std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual Event receive(std::span<std::byte> bytes, int from, int tag) = 0;

  /// Returns a new group, of those members that passed the same `color`, in the order of their ranks in this group. Waits until all members
  /// have called. The new groups work concurrently with each other and with this group.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// Declares that this rank cannot go on. On every member, also of groups split from this one, operations that wait for another rank and
  /// all later calls fail with Error(peer), which quotes `what`. May be called from any thread.
  virtual void abort(const std::string& what) noexcept = 0;

  /// Announces that this rank now does long work that needs no other rank, such as reading a model. Until this rank's next call in any of
  /// these groups, the other ranks do not count it as late.
  virtual void works_alone() = 0;
};

/// Limits how long a rank may work alone, as a multiple of the time-out.
constexpr double kLongestWork = 60;

}  // namespace spillway::parallel
