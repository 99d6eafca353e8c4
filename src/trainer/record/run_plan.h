// RunPlan describes the plan of a run. The file plan.json in the run folder stores it for programs and people that watch the run: memory by
// tier with its budgets, the predicted time of a step, the bytes that a step moves, and what would make a step faster. The types are plain
// values; thread-safe.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/planner.h"
#include "trainer/plan/prediction.h"
#include "trainer/record/audit.h"

namespace spillway::trainer {

struct RunPlan {
  i64 began_at_step = 0;  // the last step that the run had finished when this process began
  std::string model, device;
  i64 parameters = 0, trained = 0;
  int threads = 0, ranks = 1, pipeline_stages = 1, zero_stage = 0;
  i64 tokens_per_step = 0;  // sum over all ranks

  using ByTier = std::array<i64, offload::kTiers>;
  std::vector<parallel::PlanRow> rows;  // memory by purpose; all members from here on describe rank 0
  ByTier total{}, budget{};
  i64 process_bytes = 0;
  parallel::TierBytes moved;  // bytes that a step moves, by tier
  double step_s = 0;          // predicted seconds of a step
  std::string bound_by;
  Phases phase_ms;
  std::vector<std::string> choices;  // the planner's choices, as lines of text
  Levers levers;
};

std::string to_json(const RunPlan& plan);
/// Reads the plan from a run folder. Returns nothing if the folder has no readable
/// plan, for example because an older program made the run or the run has not begun.
std::optional<RunPlan> read_run_plan(const std::filesystem::path& run);
std::filesystem::path run_plan_file(const std::filesystem::path& run);

}  // namespace spillway::trainer
