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
  /// Fewer than 5 % of the last 50 steps were clipped. Steps not yet taken count as clipped: clipping bites most at the beginning.
  bool speculate() const {
    const auto calm = static_cast<size_t>(std::count(recent_.begin(), recent_.end(), false));
    return 20 * (kWindow - calm) < kWindow;
  }

 private:
  static constexpr size_t kWindow = 50;
  std::deque<bool> recent_;
};

}  // namespace spillway::parallel
