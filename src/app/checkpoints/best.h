// Which validation of a run was the best, across its restarts: best.json in the run's folder names the one whose checkpoint is kept.
// One thread.
#pragma once
#include <filesystem>
#include <optional>

#include "base/types.h"

namespace spillway::app {

struct Best {
  i64 step = 0;
  double loss = 0;  // finite
  bool operator==(const Best&) const = default;
};

/// A run can have reached such a step, and a validation can have been the best with such a loss.
bool is_possible(const Best& best);
/// Empty: none is known, or its checkpoint is not there. Error(data) on a file that is none of ours; no more of it than a few KiB is read.
std::optional<Best> read_best(const std::filesystem::path& run);
/// Whole or not at all. Error(io).
void write_best(const std::filesystem::path& run, const Best& best);

}  // namespace spillway::app
