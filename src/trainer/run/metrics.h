// Formats the lines of metrics.jsonl and the summary of `train --json`. Reading a printed number back gives exactly the same number. A
// non-finite number is printed as null, with "nonfinite": "nan" or "inf" beside it.
#pragma once
#include <optional>
#include <string>

#include "parallel/run/rank.h"
#include "trainer/node/busy.h"
#include "trainer/plan/profile.h"
#include "trainer/record/audit.h"
#include "trainer/record/wear.h"

namespace spillway::trainer {

struct MetricsRow {
  i64 step = 0;  // number of the step, counted from 1
  parallel::StepResult result;
  double learning_rate = 0, seconds = 0;
  i64 positions = 0, samples = 0;  // positions include padding tokens, result.data_tokens does not
  std::optional<double> validation_loss, validation_accuracy;
  parallel::TierBytes moved;  // bytes that this rank moved in the step
  int ranks = 1, slowest_rank = 0;
  double slowest_wait = 0;  // share of the step's time for which the slowest rank waited for other ranks
  Phases phases;
  std::array<i64, offload::kTiers> tier_bytes{}, peak_bytes{};
  double flops_per_s = 0;              // model FLOP/s of this rank, as model_flops() counts them
  std::optional<double> matmul_share;  // flops_per_s as a share of the matmul rate that `spillway bench` measured
  double predicted_ms = 0;
  std::string bound_by;
  Wear wear;  // wear of the scratch drives at the mean write rate since this process began
  i64 began_at_step = 0;
};

std::string to_json(const MetricsRow& row);

/// Formats only the numerical results of a step. A restart writes this short
/// line if the earlier process died before it could write the step's full line.
std::string brief_json(i64 step, const parallel::StepResult& result, double learning_rate, i64 positions, i64 samples);

/// Formats only the results of a validation. Used for a validation that is made after the metrics line of its step was written.
std::string validation_json(i64 step, double loss, std::optional<double> accuracy);

/// Trained describes what a run trained: the model, the amount of data, and the time.
struct Trained {
  std::string model;
  i64 parameters = 0, trained = 0;  // elements of all parameters; elements of those that are not frozen
  i64 steps = 0;                    // steps, tokens and positions of this process alone
  i64 tokens = 0, counted = 0;      // tokens: trained tokens (images for an image model); counted: targets that contributed to the loss
  i64 positions = 0;                // number of trained tokens including padding
  double seconds = 0;               // duration of this process's training, including all work between steps
  double per_s(i64 count) const { return static_cast<double>(count) / seconds; }
  i64 tokens_in_all = 0;           // tokens trained on by this process and by earlier processes of the run
  std::string checkpoint, python;  // the last step's checkpoint and the Python line that loads it; empty if there is none
};

/// Summary is the result of `train --json`.
struct Summary {
  i64 step = 0;
  parallel::StepResult last;
  std::optional<double> validation_loss, validation_accuracy;
  std::string run;
  Trained trained;
  Wear wear;
  std::vector<ProfileRow> profile;  // rows of the profile; empty without the flag --profile
  std::vector<AuditRow> audit;      // predicted and measured values; empty if no step was taken
  parallel::Resource bound_by = parallel::Resource::compute;
  i64 unplanned_bytes = 0;  // bytes moved above or below plan, summed over the steps of all ranks
  Contention contention;    // whether other programs held the first rank up
};
std::string to_json(const Summary& summary);

}  // namespace spillway::trainer
