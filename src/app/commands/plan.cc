// spillway plan: what train would do, without weights, data or a byte written.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/flags/pipeline_wish.h"
#include "app/ranks/device_choice.h"
#include "app/run/resolve.h"
#include "app/run/session.h"
#include "app/run/wear.h"
#include "base/units.h"

namespace spillway::app {
namespace {

// What the predicted pace comes to.
struct Pace {
  i64 tokens_per_step = 0;
  double step_s = 0;
  std::optional<i64> steps;  // of --steps, or of the data's epochs
  Wear wear;                 // of all ranks of this node
};

nlohmann::ordered_json by_tier(const std::array<i64, offload::kTiers>& bytes) {
  return {{"device", bytes[0]}, {"host", bytes[1]}, {"nvme", bytes[2]}};
}

std::string plan_json(const parallel::Plan& plan, const TierBudgets& budgets, const Pace& pace) {
  nlohmann::ordered_json out;
  for (const parallel::PlanRow& row : plan.rows) out["rows"].push_back({{"what", row.what}, {"bytes", by_tier(row.bytes)}});
  out["total_bytes"] = by_tier(plan.total);
  out["budget_bytes"] = by_tier(budgets.bytes);
  const parallel::TierBytes moved = plan.moved_per_step();
  out["read_bytes_per_step"] = by_tier(moved.read);
  out["written_bytes_per_step"] = by_tier(moved.written);
  out["exchanged_bytes_per_step"] = moved.exchanged;
  out["sent_bytes_per_step"] = moved.sent;
  out["tokens_per_step"] = pace.tokens_per_step;
  out["predicted_step_s"] = pace.step_s;
  out["steps"] = pace.steps ? nlohmann::ordered_json(*pace.steps) : nlohmann::ordered_json();
  out["nvme_written_per_day"] = pace.wear.bytes_per_day;
  out["days_to_endurance"] = pace.wear.days ? nlohmann::ordered_json(*pace.wear.days) : nlohmann::ordered_json();
  out["ranks"] = plan.scheduling.sharding.ranks * plan.scheduling.pipeline.ranks;
  out["pipeline_stages"] = plan.scheduling.pipeline.ranks;
  out["zero_stage"] = plan.scheduling.sharding.stage;
  out["prefetch"] = plan.scheduling.prefetch;
  out["recompute"] = plan.placement.activations.front().recompute;
  out["instructions"] = plan.train.head.size() + plan.train.commit.size();
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
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

Pace pace_of(const PlanConfig& given, Session& session, i64 ranks) {
  PlanConfig config = given;
  const parallel::Plan& plan = session.chosen();
  Pace pace{
      config.global_batch() * *config.sequence_length, session.prediction().step(plan.train, plan.train.commit).seconds, config.steps, {}};
  if (!config.data.empty()) {
    const RunData data(config, 0, session.source().config);
    resolve_steps(config, *data.training);
    pace.steps = config.steps;
  }
  const NvmePaths& nvme = session.nvme();
  if (const i64 written = plan.moved_per_step().written[2] * ranks; written > 0)
    pace.wear = wear_of(written, 1, pace.tokens_per_step, pace.step_s, config.endurance_bytes, drives_worth(nvme.shares.weights));
  return pace;
}

std::string pace_text(const PlanConfig& config, const Session& session, const Pace& pace) {
  const bool images = session.model().reads_images();
  std::string text = images ? fmt::format("a step is {} images", config.global_batch())
                            : fmt::format("a step is {} sequences of {} tokens, {} in all", config.global_batch(), *config.sequence_length,
                                          pace.tokens_per_step);
  if (pace.steps) text += fmt::format("; {} steps take {}", *pace.steps, format_duration(pace.step_s * static_cast<double>(*pace.steps)));
  if (pace.wear.bytes_per_step > 0) text += "\nwritten to nvme: " + to_text(pace.wear, config.endurance_bytes);
  return text;
}

}  // namespace

int run_plan(const PlanConfig& given, Console& console) {
  PlanConfig config = given;
  config.for_any_node = true;
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
  const Pace pace = pace_of(config, session, ranks);
  if (console.json()) {
    console.result(plan_json(plan, session.budgets(), pace));
    return 0;
  }
  const parallel::TierBytes moved = plan.moved_per_step();
  std::string text = "it fits:\n" + memory_table(plan, session.budgets());
  text += fmt::format("a step moves: host read {} written {}, nvme read {} written {}", format_bytes(moved.read[1]),
                      format_bytes(moved.written[1]), format_bytes(moved.read[2]), format_bytes(moved.written[2]));
  if (ranks > 1) text += fmt::format(", across the ranks {}", format_bytes(moved.exchanged));
  if (config.pipeline_stages > 1) text += fmt::format(", to other stages {}", format_bytes(moved.sent));
  text += "\n" + pace_text(config, session, pace);
  for (const std::string& line : session.choices()) text += "\n  " + line;
  if (config.program) text += "\n" + program_text(plan.train);
  console.result(text);
  return 0;
}

}  // namespace spillway::app
