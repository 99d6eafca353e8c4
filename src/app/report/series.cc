#include "app/report/series.h"

#include <cmath>

namespace spillway::app {

void Series::add(i64 step, double value) {
  if (!std::isfinite(value)) return;
  const Point point{static_cast<double>(step), value};
  const i64 bucket = (step - first_) / width_;
  if (bucket != bucket_) {
    flush();
    bucket_ = bucket;
    least_ = most_ = point;
    return;
  }
  if (value < least_.value) least_ = point;
  if (value >= most_.value) most_ = point;
}

void Series::flush() {
  if (bucket_ < 0) return;
  const auto& [early, late] = std::minmax(least_, most_, [](const Point& a, const Point& b) { return a.step < b.step; });
  points_.push_back(early);
  if (late.step != early.step) points_.push_back(late);
  bucket_ = -1;
}

void Measure::add(i64 step, double value) {
  if (!std::isfinite(value)) return;
  const Point point{static_cast<double>(step), value};
  if (count == 0 || value < least.value) least = point;
  if (count == 0 || value > most.value) most = point;
  last = point;
  sum += value;
  ++count;
}

}  // namespace spillway::app
