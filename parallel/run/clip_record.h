// Decides from recent clipping whether the optimizer's Steps run speculatively inside the backward or are deferred to the next forward. If
// a step turns out to be clipped, what was stepped inside its backward is discarded and stepped again in the next forward. That costs no
// time, because without speculation it would have been stepped there anyway, but the discarded result was written to a drive for nothing.
// All ranks see the same input and so decide the same; the decision changes no number. For one thread.
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
