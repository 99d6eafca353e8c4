// Decides between speculating and deferring by how often clipping has bitten lately. A clipped step makes what was stepped inside its
// backward in vain: it is stepped again in the next forward, where it would have been stepped anyway without speculation, so that costs no
// time, but it was written to a drive for nothing. Its input is the same on all ranks, so is its answer; numbers do not depend on it. One
// thread.
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
  /// At most half of the last 50 steps were clipped.
  bool speculate() const { return 2 * std::ranges::count(recent_, true) <= std::ssize(recent_); }

 private:
  static constexpr size_t kWindow = 50;
  std::deque<bool> recent_;
};

}  // namespace spillway::parallel
