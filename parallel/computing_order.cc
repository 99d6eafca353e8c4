#include "parallel/computing_order.h"

namespace spillway::parallel {

// Ranges of micro-batches go through all blocks together: one by one, or all of them.
ComputingOrder::ComputingOrder(const Layout& layout, const Scheduling& scheduling, bool training)
    : prefetch_(static_cast<size_t>(scheduling.prefetch)) {
  const auto blocks = static_cast<u16>(layout.blocks.size());
  const auto micro_batches = static_cast<u16>(training ? scheduling.micro_batches : 1);
  const u16 together = scheduling.order == Order::vertical ? micro_batches : u16{1};
  for (u16 first = 0; first < micro_batches; first = static_cast<u16>(first + together)) {
    for (u16 b = 0; b < blocks; ++b) add_run(false, b, first, together);
    for (u16 b = blocks; training && b-- > layout.first_trained_block;) add_run(true, b, first, together);
  }
}

void ComputingOrder::add_run(bool backward, u16 block, u16 first, u16 count) {
  run_begin_.push_back(size());
  for (u16 k = 0; k < count; ++k) {
    run_of_.push_back(run_begin_.size() - 1);
    order_.push_back({backward, block, static_cast<u16>(first + k)});
  }
}

i64 ComputingOrder::issue_at(i64 position) const {
  const size_t run = run_of_[static_cast<size_t>(position)];
  return run_begin_[run > prefetch_ ? run - prefetch_ : 0];
}

bool ComputingOrder::goes_on(i64 position) const {
  const auto next = static_cast<size_t>(position) + 1;
  return next < order_.size() && run_of_[next] == run_of_[next - 1];
}

}  // namespace spillway::parallel
