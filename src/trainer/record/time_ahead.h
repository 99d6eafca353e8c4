// Estimates how long the next part of a run may take, so that a run with a time limit stops while there is time left to save.
// The estimate is the longest of the last few measured times, because steps differ: in some the gradients are clipped, some
// run during a save. The caller measures the times; this code reads no clock. The types are plain values; not thread-safe.
#pragma once
#include <deque>
#include <optional>

#include "base/types.h"

namespace spillway::trainer {

/// LongestLately keeps the last few measured times of one kind of work and returns the longest of them.
class LongestLately {
 public:
  /// Creates an empty list. `expected_s` is the estimate in seconds until a time has been measured.
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

  /// Next says which work comes between the next step and the next check of the time limit: a validation, a sample, histograms.
  struct Next {
    bool validates = false, samples = false, counts_histograms = false;
  };
  double seconds(const Next& next) const;
  /// Returns the seconds in which each rank evaluates one micro-batch of a validation. If none was measured yet, returns the time of a
  /// step.
  double part_of_validation_s() const { return micro_batch.any() ? micro_batch.seconds() : step.seconds(); }
};

/// Estimates the seconds of a save before any save has been measured. Each of `nodes` nodes is
/// assumed to write an equal part of `bytes` bytes at `bytes_per_s`. The result is at least 1.
double expected_save_s(i64 bytes, i64 nodes, double bytes_per_s);

/// TimeLimit is the time limit of a run, in seconds on the same clock as `now_s`. `limit_s` is empty if the run has no limit.
class TimeLimit {
 public:
  explicit TimeLimit(std::optional<double> limit_s = {}) : limit_s_(limit_s) {}
  /// Returns whether work of `ahead_s` seconds, followed by two saves of `save_s` seconds each, would exceed the limit.
  bool is_short(double now_s, double ahead_s, double save_s) const { return limit_s_ && now_s + ahead_s + 2 * save_s >= *limit_s_; }
  double left_s(double now_s) const { return limit_s_ ? *limit_s_ - now_s : 0; }
  bool any() const { return limit_s_.has_value(); }

 private:
  std::optional<double> limit_s_;
};

}  // namespace spillway::trainer
