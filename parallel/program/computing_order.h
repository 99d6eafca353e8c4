// A ComputingOrder is the order in which a rank computes: which block on which micro-batch, and whether forward, backward or a part of the
// backward. Memory and copies are planned later, from this order. The order is the one that the pipeline schedule gives for this rank.
// Consecutive micro-batches on the same block form a run. The data that a run reads is fetched `prefetch` runs ahead. A plain value.
#pragma once
#include <map>
#include <vector>

#include "parallel/program/program.h"
#include "parallel/schedule/schedule_simulate.h"

namespace spillway::parallel {

/// Says what one instruction computes, before its memory is planned.
struct Compute {
  Op op = Op::Forward;
  u16 block = 0, micro_batch = 0;
};

/// Identifies data of one micro-batch that goes from one pipeline rank to another: a block's output, or the gradient of that output.
struct Message {
  bool gradient = false;
  u16 block = 0, micro_batch = 0;
  auto operator<=>(const Message&) const = default;
};

class ComputingOrder {
 public:
  /// Makes the order for a training step or, without training, for one forward pass of one micro-batch.
  ComputingOrder(const Layout& layout, const Scheduling& scheduling, bool training);

  i64 size() const { return std::ssize(order_); }
  const Compute& operator[](i64 position) const { return order_[static_cast<size_t>(position)]; }
  /// Returns the position in the order at which the fetch of the data for `position` is issued. It is never after `position`.
  i64 issue_at(i64 position) const;
  /// Calls body(compute) for the Compute at `position` and for each later Compute whose data has to be fetched at `position` or before.
  template <class Body>
  void for_due(i64 position, Body&& body) const {
    for (i64 i = position; i < size() && issue_at(i) <= position; ++i) body((*this)[i]);
  }
  /// Returns true if the next position computes the same block on the next micro-batch.
  bool goes_on(i64 position) const;
  /// Returns how many micro-batches of the block need memory at the same time. Micro-batch m uses the memory with number m % live(block)
  /// from its forward until the gradient of its input is computed.
  i64 live(u16 block) const;
  /// Returns the messages that must be received before this position is computed. All ranks send and receive in the order of the schedule's
  /// times. So the first message that is not yet delivered is always the next one for its sender and for its receiver, and ranks cannot
  /// deadlock.
  const std::vector<Message>& received_at(i64 position) const { return received_at_[static_cast<size_t>(position)]; }

 private:
  void add(const Layout& layout, const Stages& stages, const Action& action, double end_time);
  void add_run(const Compute& c);
  void place_messages(const Layout& layout, const Stages& stages, const ScheduleTimes& times);

  const size_t prefetch_;
  std::vector<Compute> order_;
  std::vector<double> ends_;    // for each position: the time at which it ends, in the schedule's unit of time
  std::vector<size_t> run_of_;  // for each position: the index of the run to which it belongs
  std::vector<i64> run_begin_;  // for each run: its first position
  std::vector<std::vector<Message>> received_at_;
};

}  // namespace spillway::parallel
