// Implements `spillway plan`, which shows what train would do, without weights or data and without writing anything.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/commands/plan_report.h"
#include "app/report/page.h"
#include "app/report/today.h"
#include "base/units.h"
#include "trainer/plan/stage_plans.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/record/recorder.h"
#include "trainer/run/data_sources.h"
#include "trainer/run/plan_record.h"
#include "trainer/run/resolve.h"
#include "trainer/run/session.h"
#include "trainer/settings/cluster.h"
#include "trainer/settings/pipeline_wish.h"
#include "trainer/settings/run_settings.h"

namespace spillway::app {
namespace {

Pace pace_of(const PlanConfig& config, const Session& session, std::optional<i64> steps, double step_s, i64 ranks) {
  const parallel::Plan& plan = session.chosen();
  Pace pace{config.global_batch() * *config.sequence_length, step_s, steps, {}};
  const NvmePaths& nvme = session.nvme();
  if (const i64 written = plan.moved_per_step().written[2] * ranks; written > 0)
    pace.wear = wear_of(written, 1, pace.tokens_per_step, pace.step_s, config.run->endurance_bytes, drives_worth(nvme.shares.weights));
  return pace;
}

// Returns the place of the first rank, for which the plan is made, since no other rank's part is larger. All ranks are on this node, or
// with --cluster there is one rank per GPU of each node.
RankPlace place_of(const PlanConfig& config) {
  const auto ranks = static_cast<int>(config.ranks);
  const int local = config.cluster ? static_cast<int>(parse_cluster(*config.cluster, "--cluster").gpus) : ranks;
  return {.ranks = ranks, .local_ranks = local, .core_sharers = local};
}

// Returns the device to plan for. With --cluster this is a GPU of another machine. The GPUs
// communicate over NCCL unless the flags say otherwise, and NCCL's buffers take GPU memory.
ChosenDevice device_of(PlanConfig& config, const GpuReport& gpus, const RankPlace& place) {
  ChosenDevice device = choose_device(config, gpus, place, true);
  if (!config.cluster) {
    device.meeting = expected_meeting(config, device.device, gpus);
    return device;
  }
  device.name = "a GPU of --cluster";
  device.meeting.timeout_s = static_cast<double>(config.timeout_s);
  device.meeting.nccl = place.ranks > 1 && (config.communicator == "auto" || config.communicator == "nccl");
  if (device.meeting.nccl) *config.device_memory_bytes -= std::min(kLeastNcclBytes, *config.device_memory_bytes / 32);
  return device;
}

// Returns the timeline of a step. It shows all stages of a pipeline, unless there are too many to be looked at one by one.
Timeline timeline_of(Session& session) {
  const parallel::Plan& plan = session.chosen();
  const StepCost& cost = session.prediction().step(plan.train);
  Timeline timeline;
  timeline.ranks.push_back(timeline_of(plan.train, cost, ""));
  const parallel::PlanRequest& request = session.prediction().request();
  constexpr int kMostStages = 16;
  if (plan.scheduling.pipeline.ranks == 1 || plan.scheduling.pipeline.ranks > kMostStages) return timeline;
  const std::vector<parallel::Plan> stages = plans_of_stages(request, plan);
  timeline.ranks.clear();
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const StepCost one = predict_together(stages, stage, {}, *request.model, session.prediction().rates());
    timeline.ranks.push_back(timeline_of(stages[stage].train, one, fmt::format("stage {}", stage)));
  }
  return timeline;
}

ReportedPlan reported(Session& session, i64 ranks, const PlanReport& report) {
  ReportedPlan made{record_of(session, ranks, report.pace.tokens_per_step, 0), timeline_of(session), {}, {}, report.command};
  made.lines = pace_lines(report);
  for (const Alternative& one : report.alternatives) {
    if (made.alternatives.empty()) made.alternatives.push_back({"flag", "a step", "device", "host", "nvme"});
    made.alternatives.push_back(
        {one.flag, format_duration(one.seconds), format_bytes(one.total[0]), format_bytes(one.total[1]), format_bytes(one.total[2])});
  }
  return made;
}

}  // namespace

PlanReport make_plan(const PlanConfig& given, const std::function<void(const std::string&)>& log) {
  PlanConfig config = given;
  config.for_any_node = true;
  const GpuReport gpus = config.cluster ? GpuReport{{}, "--cluster"} : look_at_gpus(config, 0);
  resolve_device(config, gpus);
  ModelSource source = find_model(config.model);
  for (const std::string& note : source.notes) log("model: " + note);
  resolve_model(config, source);
  check_stages(config);
  const RankPlace place = place_of(config);
  std::optional<i64> steps = config.steps;
  if (!config.data.empty() && !needs_preparation(config, source)) {  // data that must be tokenized is not read, since that writes files
    TrainConfig train = config;
    resolve_steps(train, *RunData(config, 0, 1, source).training);
    steps = train.steps;
  }
  const ChosenDevice device = device_of(config, gpus, place);
  Session session(config, device, std::move(source), "plan", state_of(config), place, pipeline_of(config));
  session.plan(*config.placement, work_of(config));
  const double step_s = session.prediction().step(session.chosen().train).seconds;
  PlanReport report = report_of(config, session, pace_of(config, session, steps, step_s, place.local_ranks),
                                train_command(given, session.chosen().uses(Tier::nvme)));
  if (config.html) {
    write_page(*config.html, plan_page(reported(session, config.ranks, report), now_text()));
    log("wrote " + *config.html);
  }
  return report;
}

int run_plan(const PlanConfig& config, Console& console) {
  const PlanReport report = make_plan(config, [&](const std::string& line) { console.log(line); });
  console.result([&] { return plan_json(report).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace); },
                 [&] { return plan_text(report); });
  return 0;
}

}  // namespace spillway::app
