// In which order a rank computes: which block on which micro-batch, forward or backward, before memory and moving are planned. Blocks are
// passed in runs, the micro-batches that go through a block one after another; what a run needs is fetched `prefetch` runs ahead. A value.
#pragma once
#include <vector>

#include "parallel/placement.h"

namespace spillway::parallel {

/// One computing instruction before memory is planned.
struct Compute {
  bool backward = false;
  u16 block = 0, micro_batch = 0;
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

 private:
  void add_run(bool backward, u16 block, u16 first, u16 count);

  const size_t prefetch_;
  std::vector<Compute> order_;
  std::vector<size_t> run_of_;  // of each position
  std::vector<i64> run_begin_;  // of each run: its first position
};

}  // namespace spillway::parallel
