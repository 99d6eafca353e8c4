// spillway plan: what train would do, without weights, data or a byte written.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/flags/pipeline_wish.h"
#include "app/ranks/device_choice.h"
#include "app/run/resolve.h"
#include "app/run/session.h"
#include "base/units.h"

namespace spillway::app {
namespace {

nlohmann::ordered_json by_tier(const std::array<i64, offload::kTiers>& bytes) {
  return {{"device", bytes[0]}, {"host", bytes[1]}, {"nvme", bytes[2]}};
}

std::string plan_json(const parallel::Plan& plan, const TierBudgets& budgets) {
  nlohmann::ordered_json out;
  for (const parallel::PlanRow& row : plan.rows) out["rows"].push_back({{"what", row.what}, {"bytes", by_tier(row.bytes)}});
  out["total_bytes"] = by_tier(plan.total);
  out["budget_bytes"] = by_tier(budgets.bytes);
  const parallel::TierBytes moved = plan.moved_per_step();
  out["read_bytes_per_step"] = by_tier(moved.read);
  out["written_bytes_per_step"] = by_tier(moved.written);
  out["exchanged_bytes_per_step"] = moved.exchanged;
  out["sent_bytes_per_step"] = moved.sent;
  out["ranks"] = plan.scheduling.sharding.ranks * plan.scheduling.pipeline.ranks;
  out["pipeline_stages"] = plan.scheduling.pipeline.ranks;
  out["zero_stage"] = plan.scheduling.sharding.stage;
  out["prefetch"] = plan.scheduling.prefetch;
  out["recompute"] = plan.placement.activations.front().recompute;
  out["instructions"] = plan.train.head.size() + plan.train.commit.size();
  return out.dump(2);
}

std::string program_text(const parallel::Program& program) {
  const std::pair<const char*, const parallel::List*> lists[] = {{"head", &program.head},
                                                                 {"commit", &program.commit},
                                                                 {"redo", &program.redo},
                                                                 {"skip", &program.skip},
                                                                 {"deferred", &program.deferred}};
  std::string text;
  for (const auto& [name, list] : lists) {
    if (!list->empty()) text += std::string(name) + "\n" + to_text(*list);
  }
  return text;
}

}  // namespace

int run_plan(const PlanConfig& given, Console& console) {
  PlanConfig config = given;
  const GpuReport gpus = look_at_gpus(config, 0);
  resolve_device(config, gpus);
  ModelSource source = find_model(config.model);
  resolve_model(config, source);
  // The first of so many ranks on this node: no other one's parts are larger.
  check_stages(config);
  const auto ranks = static_cast<int>(config.ranks);
  const RankPlace place{.ranks = ranks, .local_ranks = ranks, .core_sharers = ranks};
  ChosenDevice device = choose_device(config, gpus, place, true);
  device.meeting = expected_meeting(config, device.device, gpus);
  Session session(config, device, std::move(source), "plan", state_of(config), place, pipeline_of(config));
  session.plan(wishes_of(config), work_of(config));
  const parallel::Plan& plan = session.chosen();
  if (console.json()) {
    console.result(plan_json(plan, session.budgets()));
    return 0;
  }
  const parallel::TierBytes moved = plan.moved_per_step();
  std::string text = "it fits:\n" + memory_table(plan, session.budgets());
  text += fmt::format("a step moves: host read {} written {}, nvme read {} written {}", format_bytes(moved.read[1]),
                      format_bytes(moved.written[1]), format_bytes(moved.read[2]), format_bytes(moved.written[2]));
  if (ranks > 1) text += fmt::format(", across the ranks {}", format_bytes(moved.exchanged));
  if (config.pipeline_stages > 1) text += fmt::format(", to other stages {}", format_bytes(moved.sent));
  for (const std::string& line : session.choices()) text += "\n  " + line;
  if (config.program) text += "\n" + program_text(plan.train);
  console.result(text);
  return 0;
}

}  // namespace spillway::app
