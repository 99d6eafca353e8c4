// Series is one metric over the steps of a run, thinned to what a chart can show. Of each bucket of neighbouring steps it keeps
// the least and the greatest value, so that no spike is lost. Steps must be added in ascending order. The types are plain values.
#pragma once
#include <algorithm>
#include <vector>

#include "base/types.h"

namespace spillway::app {

struct Point {
  double step = 0, value = 0;
  bool operator==(const Point&) const = default;
};

class Series {
 public:
  Series() = default;
  /// Makes a series for steps first..last, with at most two points in each of `buckets` buckets.
  Series(i64 first, i64 last, i64 buckets) : first_(first), width_(std::max<i64>(1, (last - first) / std::max<i64>(1, buckets) + 1)) {}

  /// Adds a value. NaN and infinities are ignored.
  void add(i64 step, double value);
  void finish() { flush(); }
  const std::vector<Point>& points() const { return points_; }
  bool empty() const { return points_.empty(); }

 private:
  void flush();

  i64 first_ = 1, width_ = 1, bucket_ = -1;
  Point least_, most_;
  std::vector<Point> points_;
};

/// Measure holds statistics of a metric over all its finite values, without thinning.
struct Measure {
  i64 count = 0;
  double sum = 0;
  Point last, least, most;

  void add(i64 step, double value);
  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
};

}  // namespace spillway::app
