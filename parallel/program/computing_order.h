// The order in which a rank computes: which block on which micro-batch, forward or (a part of) backward, before memory and copies are
// planned. It follows the rank's row of the pipeline schedule. Consecutive micro-batches on the same block form a run, and what a run needs
// is fetched `prefetch` runs ahead. A value.
#pragma once
#include <map>
#include <vector>

#include "parallel/program/program.h"
#include "parallel/schedule/schedule_simulate.h"

namespace spillway::parallel {

/// The computing of one instruction, before its memory is planned.
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
  /// Makes the order of a training step or, without training, of one forward pass over one micro-batch.
  ComputingOrder(const Layout& layout, const Scheduling& scheduling, bool training);

  i64 size() const { return std::ssize(order_); }
  const Compute& operator[](i64 position) const { return order_[static_cast<size_t>(position)]; }
  /// Returns the position before which the data needed at `position` is fetched.
  i64 issue_at(i64 position) const;
  /// Calls body(computing) for the computing at `position` and for all later computing whose data is fetched at `position` or before.
  template <class Body>
  void for_due(i64 position, Body&& body) const {
    for (i64 i = position; i < size() && issue_at(i) <= position; ++i) body((*this)[i]);
  }
  /// Returns true if the next micro-batch goes through the same block directly afterwards.
  bool goes_on(i64 position) const;
  /// Returns how many slots the block needs if micro-batch m uses slot m % live(block) from its forward until its input's gradient is
  /// computed.
  i64 live(u16 block) const;
  /// Returns the messages to receive before this position is computed. All ranks send and receive in one order, that of the schedule's
  /// times, so the first message that is not yet delivered is always the next one for both its sender and its receiver, and ranks cannot
  /// deadlock.
  const std::vector<Message>& received_at(i64 position) const { return received_at_[static_cast<size_t>(position)]; }

 private:
  void add(const Layout& layout, const Stages& stages, const Action& action, double end_time);
  void add_run(const Compute& c);
  void place_messages(const Layout& layout, const Stages& stages, const ScheduleTimes& times);

  const size_t prefetch_;
  std::vector<Compute> order_;
  std::vector<double> ends_;    // end time of each position, in the schedule's units
  std::vector<size_t> run_of_;  // run to which each position belongs
  std::vector<i64> run_begin_;  // first position of each run
  std::vector<std::vector<Message>> received_at_;
};

}  // namespace spillway::parallel
