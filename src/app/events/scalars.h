// The numbers of a line of metrics.jsonl as one list, named and grouped as TensorBoard shows them: what event files and metrics.csv have.
// Pure functions.
#pragma once
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::app {

struct Scalar {
  std::string tag;  // "validation/loss"
  double value = 0;
  bool operator==(const Scalar&) const = default;
};

struct StepScalars {
  i64 step = 0;
  std::vector<Scalar> scalars;  // in the order of scalar_tags(), without those that the line does not have
};

/// All that there may be, in their order.
const std::vector<std::string>& scalar_tags();

/// Of a line of this program or an older one. A step of 0: it is none.
StepScalars scalars_of(const std::string& metrics_line);

/// The step of a line of metrics.jsonl, and of a row of metrics.csv. 0: it is of none.
i64 step_of_line(const std::string& metrics_line);
i64 step_of_row(const std::string& csv_row);

/// Of metrics.csv, each with its end of line: all tags, and a step's values, empty where it has none.
std::string csv_header();
std::string csv_row(const StepScalars& step);

}  // namespace spillway::app
