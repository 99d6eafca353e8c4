// Turns the numbers of a line of metrics.jsonl into one flat list, named and grouped as TensorBoard
// shows them. Event files and metrics.csv are written from this list. All functions are pure.
#pragma once
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::trainer {

struct Scalar {
  std::string tag;  // name in TensorBoard, such as "validation/loss"
  double value = 0;
  bool operator==(const Scalar&) const = default;
};

struct StepScalars {
  i64 step = 0;
  std::vector<Scalar> scalars;  // the numbers, in the order of scalar_tags(); numbers that the line lacks are left out
};

/// Returns the tags of all scalars that a line may have, in the order in which they are listed.
const std::vector<std::string>& scalar_tags();

/// Returns the numbers of a line of metrics.jsonl that this program or an older
/// one wrote. If `metrics_line` is no such line, the step of the result is 0.
StepScalars scalars_of(const std::string& metrics_line);

/// Return the step of a line of metrics.jsonl, and of a row of metrics.csv. A line or row without a step gives 0.
i64 step_of_line(const std::string& metrics_line);
i64 step_of_row(const std::string& csv_row);

/// csv_header() returns the header of metrics.csv, which has all tags; csv_row() returns the row of a step. Both texts end with a line
/// feed. A cell is empty if the step does not have the number.
std::string csv_header();
std::string csv_row(const StepScalars& step);

}  // namespace spillway::trainer
