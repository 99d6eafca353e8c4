#include "trainer/record/time_ahead.h"

#include <algorithm>

namespace spillway::trainer {

void LongestLately::add(double seconds) {
  constexpr size_t kLast = 16;
  last_s_.push_back(seconds);
  if (last_s_.size() > kLast) last_s_.pop_front();
}

double LongestLately::seconds() const { return last_s_.empty() ? expected_s_ : *std::ranges::max_element(last_s_); }

double TimeAhead::seconds(const Next& next) const {
  return step.seconds() + (next.validates ? validation.seconds() : 0) + (next.samples ? sample.seconds() : 0) +
         (next.counts_histograms ? histograms.seconds() : 0);
}

double expected_save_s(i64 bytes, i64 nodes, double bytes_per_s) {
  constexpr double kLeast_s = 1;
  return std::max(kLeast_s, static_cast<double>(bytes) / static_cast<double>(std::max<i64>(1, nodes)) / bytes_per_s);
}

}  // namespace spillway::trainer
