// Decides between speculating and deferring by how often clipping has bitten lately: a clipped step makes a speculative update in vain.
// Its input is the same on all ranks, so is its answer; numbers do not depend on it. One thread.
#pragma once
#include <algorithm>
#include <deque>

namespace spillway::parallel {

class ClipRecord {
 public:
  void add(bool clipped) {
    recent_.push_back(clipped);
    if (recent_.size() > kWindow) recent_.pop_front();
  }
  /// Fewer than 5 % of the last 50 steps were clipped; steps not yet taken count as not clipped.
  bool speculate() const { return 20 * static_cast<size_t>(std::count(recent_.begin(), recent_.end(), true)) < kWindow; }

 private:
  static constexpr size_t kWindow = 50;
  std::deque<bool> recent_;
};

}  // namespace spillway::parallel
