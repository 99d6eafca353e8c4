// Decides, from recent clipping, whether the optimizer's updates run speculatively inside the backward or are deferred to the next
// forward. If the gradients of a speculative step turn out to be clipped, its updates are discarded and made again in the next forward.
// That costs no time, because without speculation they would be made there anyway. But the discarded updates were written to a drive for
// nothing. All ranks see the same input, so they decide the same; the decision changes no number. Used by one thread.
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
  /// Returns true if at most half of the last 50 steps were clipped.
  bool speculate() const { return 2 * std::ranges::count(recent_, true) <= std::ssize(recent_); }

 private:
  static constexpr size_t kWindow = 50;
  std::deque<bool> recent_;
};

}  // namespace spillway::parallel
