// What a run's plan promised, as the run's folder keeps it (plan.json) for whoever watches the run: memory by tier beside its budgets, the
// predicted step, what moves, and what is known of what would help. Values; thread-safe.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/plan/planner.h"
#include "app/plan/prediction.h"
#include "app/record/audit.h"

namespace spillway::app {

struct RunPlan {
  i64 began_at_step = 0;  // of the process whose plan it is
  std::string model, device;
  i64 parameters = 0, trained = 0;
  int threads = 0, ranks = 1, pipeline_stages = 1, zero_stage = 0;
  i64 tokens_per_step = 0;  // of all ranks

  using ByTier = std::array<i64, offload::kTiers>;
  std::vector<parallel::PlanRow> rows;  // of the first rank, as all below
  ByTier total{}, budget{};
  i64 process_bytes = 0;
  parallel::TierBytes moved;  // a step
  double step_s = 0;
  std::string bound_by;
  Phases phase_ms;
  std::vector<std::string> choices;  // lines of text
  Levers levers;
};

std::string to_json(const RunPlan& plan);
/// Of a run's folder; empty where there is none, or none that can be read: a run of an older program, or one that has not begun.
std::optional<RunPlan> read_run_plan(const std::filesystem::path& run);
std::filesystem::path run_plan_file(const std::filesystem::path& run);

}  // namespace spillway::app
