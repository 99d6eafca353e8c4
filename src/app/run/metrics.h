// One line of metrics.jsonl. Numbers are printed so that reading them back gives the same bits; a non-finite one is null with
// "nonfinite": "nan" or "inf" beside it.
#pragma once
#include <optional>
#include <string>

#include "app/plan/profile.h"
#include "app/record/audit.h"
#include "app/record/wear.h"
#include "parallel/run/rank.h"

namespace spillway::app {

struct MetricsRow {
  i64 step = 0;  // from 1
  parallel::StepResult result;
  double learning_rate = 0, seconds = 0;
  i64 tokens = 0, samples = 0;  // of this step
  std::optional<double> validation_loss, validation_accuracy;
  parallel::TierBytes moved;  // by this rank
  int ranks = 1, slowest_rank = 0;
  double slowest_wait = 0;  // the share of the step that the slowest rank waited for the others
  Phases phases;
  std::array<i64, offload::kTiers> tier_bytes{}, peak_bytes{};
  double flops_per_s = 0;              // of this rank: model_flops()
  std::optional<double> matmul_share;  // of what bench measured: model FLOP/s utilisation by the device's own peak
  double predicted_ms = 0;
  std::string bound_by;
  Wear wear;  // at the mean rate since this process began
  i64 began_at_step = 0;
};

std::string to_json(const MetricsRow& row);

/// The numbers of a step alone, for a line whose process died before it could write the whole one.
std::string brief_json(i64 step, const parallel::StepResult& result, double learning_rate, i64 tokens, i64 samples);

/// The numbers of a validation alone, made after the step's line was written.
std::string validation_json(i64 step, double loss, std::optional<double> accuracy);

/// What a run made, and of what.
struct Trained {
  std::string model;
  i64 parameters = 0, trained = 0;  // all of them; those that are not frozen
  i64 steps = 0;                    // here and below: of this process
  i64 tokens = 0, counted = 0;      // images, of a model that reads them; targets that count
  double tokens_per_s = 0;          // with all that was done between the steps
  i64 tokens_in_all = 0;            // of earlier processes too
  std::string checkpoint, python;   // of the last step, and the line that loads it; empty: there is none
};

/// The result of `train --json`.
struct Summary {
  i64 step = 0;
  parallel::StepResult last;
  std::optional<double> validation_loss, validation_accuracy;
  std::string run;
  Trained trained;
  Wear wear;
  std::vector<ProfileRow> profile;  // empty: none wanted
  std::vector<AuditRow> audit;      // empty: no step was taken
  parallel::Resource bound_by = parallel::Resource::compute;
  i64 unplanned_bytes = 0;  // that steps of all ranks moved beside their plans, too many or too few
};
std::string to_json(const Summary& summary);

}  // namespace spillway::app
