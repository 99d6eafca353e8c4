// Which validation of a run was the best, across its restarts: best.json in the run's folder. One thread.
#pragma once
#include <filesystem>
#include <optional>

#include "base/types.h"

namespace spillway::app {

struct Best {
  i64 step = 0;
  double loss = 0;
};

/// Empty: none is known, or its checkpoint is not there. Error(data) on a file that is none of ours.
std::optional<Best> read_best(const std::filesystem::path& run);
/// Whole or not at all. Error(io).
void write_best(const std::filesystem::path& run, const Best& best);

}  // namespace spillway::app
