// Where a run stands, read from its folder alone while it may be writing there: config.json, the end of metrics.jsonl, checkpoints/ and the
// lock. Half a line, or one of another kind, is passed over. Changes nothing. Thread-safe.
#pragma once
#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "app/record/wear.h"
#include "offload/tier.h"

namespace spillway::app {

struct RunStatus {
  enum class State { running, finished, stopped } state = State::stopped;
  std::string owner;  // of a running one: "host h, process p"
  i64 step = 0;       // the last that metrics.jsonl tells of
  std::optional<i64> steps;
  i64 ranks = 1;
  std::optional<i64> slowest_rank;  // of the last steps, the one most often
  std::optional<double> loss, validation_loss;
  /// Means over the last steps that tell; empty: none does.
  std::optional<double> step_s, tokens_per_s;
  std::optional<double> left_s;           // at that pace
  std::optional<double> last_step_age_s;  // since metrics.jsonl was written
  using ByTier = std::array<i64, offload::kTiers>;
  std::optional<ByTier> tier_bytes, peak_bytes;  // of the last step
  ByTier read_bytes{}, written_bytes{};          // a step, means
  struct Checkpoint {
    std::string name;
    i64 step = 0;
    double age_s = 0;
  };
  std::optional<Checkpoint> checkpoint;  // the newest complete one
  std::optional<i64> endurance_bytes;
  Wear wear;  // zero without writes to nvme
};
const char* to_string(RunStatus::State state);

/// Errors: Error(data) when there is no such folder, Error(usage) when it is no run's.
RunStatus read_run_status(const std::filesystem::path& run);

}  // namespace spillway::app
