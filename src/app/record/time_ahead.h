// How long what is ahead of a run may take, by what it took lately: a run stops while there is time for a save, not in the midst of
// something. The longest of the last few counts, for steps differ: some are clipped, some go on beside a save. Seconds are given to it; it
// has no clock. Values; one thread.
#pragma once
#include <deque>
#include <optional>

#include "base/types.h"

namespace spillway::app {

/// The longest of the last few times.
class LongestLately {
 public:
  /// `expected_s`: until the first one is measured.
  explicit LongestLately(double expected_s = 0) : expected_s_(expected_s) {}
  void add(double seconds);
  double seconds() const;
  bool any() const { return !last_s_.empty(); }

 private:
  double expected_s_;
  std::deque<double> last_s_;
};

struct TimeAhead {
  LongestLately step, validation, micro_batch, sample, token, histograms;

  /// What the next step is, and what comes after it before anybody looks at the time again.
  struct Next {
    bool validates = false, samples = false, counts_histograms = false;
  };
  double seconds(const Next& next) const;
  /// One micro-batch of a validation on each rank; where none was measured yet, as long as a step.
  double part_of_validation_s() const { return micro_batch.any() ? micro_batch.seconds() : step.seconds(); }
};

/// Of a save that was not yet measured: so many bytes, of which each of `nodes` writes its part at this rate; at least a second.
double expected_save_s(i64 bytes, i64 nodes, double bytes_per_s);

/// The end of a run's time, in seconds since it began; empty: there is none.
class TimeLimit {
 public:
  explicit TimeLimit(std::optional<double> limit_s = {}) : limit_s_(limit_s) {}
  /// Whether something that takes so long, and two saves after it, would end too late.
  bool is_short(double now_s, double ahead_s, double save_s) const { return limit_s_ && now_s + ahead_s + 2 * save_s >= *limit_s_; }
  double left_s(double now_s) const { return limit_s_ ? *limit_s_ - now_s : 0; }
  bool any() const { return limit_s_.has_value(); }

 private:
  std::optional<double> limit_s_;
};

}  // namespace spillway::app
