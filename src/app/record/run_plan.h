// The plan of a run, as the run folder keeps it in plan.json for whoever watches the run: memory by tier and its budgets, the predicted
// time of a step, the bytes that it moves, and what would make it faster. The types are plain values; thread-safe.
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
  i64 began_at_step = 0;  // last step before the process began whose plan this is
  std::string model, device;
  i64 parameters = 0, trained = 0;
  int threads = 0, ranks = 1, pipeline_stages = 1, zero_stage = 0;
  i64 tokens_per_step = 0;  // sum over all ranks

  using ByTier = std::array<i64, offload::kTiers>;
  std::vector<parallel::PlanRow> rows;  // memory by purpose; this and all members below are those of rank 0
  ByTier total{}, budget{};
  i64 process_bytes = 0;
  parallel::TierBytes moved;  // bytes moved in a step
  double step_s = 0;          // predicted seconds of a step
  std::string bound_by;
  Phases phase_ms;
  std::vector<std::string> choices;  // what the planner chose, as lines of text
  Levers levers;
};

std::string to_json(const RunPlan& plan);
/// Reads the plan from a run folder. Empty if there is none that can be read, as in a run of an older program or one that has not begun.
std::optional<RunPlan> read_run_plan(const std::filesystem::path& run);
std::filesystem::path run_plan_file(const std::filesystem::path& run);

}  // namespace spillway::app
