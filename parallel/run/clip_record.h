// Decides, from recent clipping, whether the optimizer's Steps run speculatively inside the backward or are deferred to the next forward.
// If a speculative step turns out to be clipped, its Steps' results are discarded, and the Steps are done again in the next forward. That
// costs no time, because without speculation they would be done there anyway. But the discarded results were written to a drive for
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
