// MetricsLine is one line of metrics.jsonl as numbers in columns. A number in a nested object has a column such as
// "tier_bytes.device" or "phase_ms.forward". Unknown keys, which a later program may have written, are ignored. Not thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::app {

/// Returns the names of all columns, in column order.
const std::vector<std::string>& metric_names();
/// Returns the index of the column with this name. Throws Error(bug) if there is no such column.
size_t metric(std::string_view name);

struct MetricsLine {
  std::vector<double> values;  // the numbers of the line, by column; NaN if the line lacks the number, or if it was not finite
  std::string bound_by;        // the resource that limited the step's speed
  bool not_finite = false;     // true if the line says that some number was not finite

  i64 step() const { return static_cast<i64>(values[0]); }
  double operator[](size_t column) const { return values[column]; }
  /// Returns the column's value, or `otherwise` if the line does not have it.
  double or_else(size_t column, double otherwise) const;
  bool has(size_t column) const { return values[column] == values[column]; }
};

/// Parses a line of metrics.jsonl. Returns false if it is not a JSON object or has no step number.
bool parse_metrics_line(std::string_view text, MetricsLine& line);

}  // namespace spillway::app
