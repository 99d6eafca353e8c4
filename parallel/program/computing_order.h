// In which order a rank computes: which block on which micro-batch, forward or (a part of) backward, before memory and moving are planned.
// It is the rank's row of the pipeline schedule. Blocks are passed in runs, the micro-batches that go through a block one after another;
// what a run needs is fetched `prefetch` runs ahead. A value.
#pragma once
#include <map>
#include <vector>

#include "parallel/program/program.h"
#include "parallel/schedule/schedule_simulate.h"

namespace spillway::parallel {

/// One computing instruction before memory is planned.
struct Compute {
  Op op = Op::Forward;
  u16 block = 0, micro_batch = 0;
};

/// What crosses pipeline ranks of one micro-batch: the block's output, or that output's gradient.
struct Message {
  bool gradient = false;
  u16 block = 0, micro_batch = 0;
  auto operator<=>(const Message&) const = default;
};

class ComputingOrder {
 public:
  /// Not training: one micro-batch forward.
  ComputingOrder(const Layout& layout, const Scheduling& scheduling, bool training);

  i64 size() const { return std::ssize(order_); }
  const Compute& operator[](i64 position) const { return order_[static_cast<size_t>(position)]; }
  /// The position at which what `position` needs is fetched.
  i64 issue_at(i64 position) const;
  /// Calls body(computing) for what is computed from `position` on and fetched there or before.
  template <class Body>
  void for_due(i64 position, Body&& body) const {
    for (i64 i = position; i < size() && issue_at(i) <= position; ++i) body((*this)[i]);
  }
  /// The next micro-batch passes the same block at once.
  bool goes_on(i64 position) const;
  /// Places that micro-batch m % live(block) can have while it has passed the block forward and its input's gradient is still to come.
  i64 live(u16 block) const;
  /// Messages that are received before this position is computed. All ranks send and receive in one order, that of the schedule's times:
  /// the first message that is not yet through is then always the next one of both its ranks, so that no ranks wait for each other in a
  /// circle.
  const std::vector<Message>& received_at(i64 position) const { return received_at_[static_cast<size_t>(position)]; }

 private:
  void add(const Layout& layout, const Stages& stages, const Action& action, double end_time);
  void add_run(const Compute& c);
  void place_messages(const Layout& layout, const Stages& stages, const ScheduleTimes& times);

  const size_t prefetch_;
  std::vector<Compute> order_;
  std::vector<double> ends_;    // of each position, in the schedule's time
  std::vector<size_t> run_of_;  // of each position
  std::vector<i64> run_begin_;  // of each run: its first position
  std::vector<std::vector<Message>> received_at_;
};

}  // namespace spillway::parallel
