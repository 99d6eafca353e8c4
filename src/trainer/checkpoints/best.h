// Remembers the best validation of a run across restarts. The file best.json in the run's
// folder names the step whose checkpoint is kept as the best. For use by one thread.
#pragma once
#include <filesystem>
#include <optional>

#include "base/types.h"

namespace spillway::trainer {

struct Best {
  i64 step = 0;
  double loss = 0;  // validation loss, always finite
  bool operator==(const Best&) const = default;
};

/// Returns whether `best` can be the best validation of a run: its step lies in a plausible range and its loss is finite.
bool is_possible(const Best& best);
/// Reads best.json. Returns nothing if the file or its checkpoint does not exist. Throws Error(data) if the file is not what write_best()
/// writes, or is larger than a few KiB.
std::optional<Best> read_best(const std::filesystem::path& run);
/// Writes best.json atomically. Throws Error(io) if the file cannot be written.
void write_best(const std::filesystem::path& run, const Best& best);

}  // namespace spillway::trainer
