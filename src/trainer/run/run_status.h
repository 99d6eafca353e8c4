// Reads the status of a run from its folder alone, even while the run is writing there: config.json, the end of
// metrics.jsonl, checkpoints/ and the lock. Half-written and foreign lines are skipped. Writes nothing. Thread-safe.
#pragma once
#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "offload/tier.h"
#include "trainer/record/wear.h"

namespace spillway::trainer {

struct RunStatus {
  enum class State { running, finished, stopped } state = State::stopped;
  std::string owner;  // the process that executes the run, if any: "host h, process p"
  i64 step = 0;       // number of the last step in metrics.jsonl
  std::optional<i64> steps;
  i64 ranks = 1;
  std::optional<i64> slowest_rank;  // the rank that was slowest most often among the last steps
  std::optional<double> loss, validation_loss;
  /// Means over the last steps for which a time was recorded: seconds per step and tokens per second. Empty if no step has a time.
  std::optional<double> step_s, tokens_per_s;
  std::optional<double> positions_per_s;  // includes padding, which older programs counted as tokens
  std::optional<double> left_s;           // estimated seconds until the last step, computed from step_s
  std::optional<double> last_step_age_s;  // seconds since metrics.jsonl was last written
  using ByTier = std::array<i64, offload::kTiers>;
  std::optional<ByTier> tier_bytes, peak_bytes;  // bytes in use, and peak of the bytes in use, at the last step
  ByTier read_bytes{}, written_bytes{};          // mean bytes per step
  struct Checkpoint {
    std::string name;
    i64 step = 0;
    double age_s = 0;
  };
  std::optional<Checkpoint> checkpoint;  // newest complete checkpoint
  std::optional<i64> endurance_bytes;
  Wear wear;  // zero if the run writes nothing to nvme
};
const char* to_string(RunStatus::State state);
/// Returns the tokens per second as text, followed by the positions per
/// second if some positions are padding. `status.tokens_per_s` must be set.
std::string tokens_per_s_text(const RunStatus& status);

/// Reads the status of the run in folder `run`. Throws Error(data) if the
/// folder does not exist, and Error(usage) if it is not a run's folder.
RunStatus read_run_status(const std::filesystem::path& run);

}  // namespace spillway::trainer
