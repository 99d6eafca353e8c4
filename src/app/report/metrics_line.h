// One line of metrics.jsonl as numbers in columns, those of its objects as "tier_bytes.device" and "phase_ms.forward". Keys of later
// programs are passed over. One thread a MetricsLine.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::app {

/// By column.
const std::vector<std::string>& metric_names();
/// The column of such a name. Error(bug) where there is none.
size_t metric(std::string_view name);

struct MetricsLine {
  std::vector<double> values;  // by column; NaN: the line does not say, or said that it was not finite
  std::string bound_by;
  bool not_finite = false;  // some number was not

  i64 step() const { return static_cast<i64>(values[0]); }
  double operator[](size_t column) const { return values[column]; }
  /// Whether it says so; `otherwise` where it does not.
  double or_else(size_t column, double otherwise) const;
  bool has(size_t column) const { return values[column] == values[column]; }
};

/// False: it is no JSON, or not of a step.
bool parse_metrics_line(std::string_view text, MetricsLine& line);

}  // namespace spillway::app
