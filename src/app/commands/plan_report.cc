#include "app/commands/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "trainer/settings/cluster.h"
#include "trainer/settings/option.h"
#include "trainer/settings/run_settings.h"
#include "trainer/settings/text.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

Json by_tier(const std::array<i64, offload::kTiers>& bytes) { return {{"device", bytes[0]}, {"host", bytes[1]}, {"nvme", bytes[2]}}; }

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const std::vector<Alternative>& alternatives) {
  Json all = Json::array();
  for (const Alternative& one : alternatives)
    all.push_back({{"flag", one.flag},
                   {"predicted_step_s", one.seconds},
                   {"nvme_written_bytes_per_step", one.nvme_written_bytes},
                   {"total_bytes", by_tier(one.total)}});
  return all;
}

Json json_of(const Roofline& r) {
  Json out{{"gpu_s", r.gpu_s},        {"to_gpu_s", r.to_gpu_s},       {"from_gpu_s", r.from_gpu_s},
           {"flops", r.flops},        {"model_flops", r.model_flops}, {"share_of_peak", r.share_of_peak(r.model_flops)},
           {"kernels", Json::array()}};
  for (const Timed& t : r.kernels) {
    const Kernel& k = t.kernel;
    out["kernels"].push_back({{"work", to_string(k.work)},
                              {"name", k.name},
                              {"times", k.times},
                              {"flops", k.flops},
                              {"bytes", k.bytes},
                              {"bound", to_string(t.bound)},
                              {"seconds", t.seconds}});
  }
  return out;
}

std::string program_text(const parallel::Program& program) {
  std::string text;
  for (const auto& [name, list] : parallel::kLists) {
    if (!(program.*list).empty()) text += std::string(name) + "\n" + to_text(program.*list);
  }
  return text;
}

std::string moved_text(const PlanReport& report) {
  const parallel::TierBytes& moved = report.moved;
  std::string text = fmt::format("a step moves: host read {} written {}, nvme read {} written {}", format_bytes(moved.read[1]),
                                 format_bytes(moved.written[1]), format_bytes(moved.read[2]), format_bytes(moved.written[2]));
  if (report.ranks > 1) text += fmt::format(", exchanged between ranks {}", format_bytes(moved.exchanged));
  if (report.pipeline_stages > 1) text += fmt::format(", sent to other stages {}", format_bytes(moved.sent));
  return text;
}

std::string pace_text(const PlanReport& report) {
  const Pace& pace = report.pace;
  std::string text = report.reads_images ? fmt::format("a step is {} images", report.global_batch)
                                         : fmt::format("a step is {} sequences of {} tokens, {} in all", report.global_batch,
                                                       report.sequence_length, pace.tokens_per_step);
  if (pace.steps) text += fmt::format("; {} steps take {}", *pace.steps, format_duration(pace.step_s * static_cast<double>(*pace.steps)));
  if (pace.wear.bytes_per_step > 0)
    text += fmt::format(
        "\nwritten to nvme: {}; to spare the drive, the planner adds {} to the time of a step when it compares plans, which is {:.0f} % of "
        "the time that the writes take",
        to_text(pace.wear, report.endurance_bytes), format_duration(report.nvme_write_price_s), 100 * kWritePrice);
  return text;
}

// Returns the busy share of each lane in the step; idle lanes are left out.
std::string lanes_text(const PlanReport& report) {
  std::string text;
  for (size_t l = 0; l < parallel::kLanes; ++l) {
    const double share = report.lane_shares[l];
    if (share > 0)
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "\n  lanes are busy: " : ", ", to_string(static_cast<parallel::Lane>(l)),
                          100 * share);
  }
  return text;
}

Json json_of_lanes(const PlanReport& report) {
  Json shares;
  for (size_t l = 0; l < parallel::kLanes; ++l) shares[std::string(to_string(static_cast<parallel::Lane>(l)))] = report.lane_shares[l];
  return shares;
}

std::string alternatives_text(const std::vector<Alternative>& alternatives) {
  if (alternatives.empty()) return "";
  const bool writes = std::ranges::any_of(alternatives, [](const Alternative& one) { return one.nvme_written_bytes > 0; });
  const auto bytes = [](i64 count) { return count == 0 ? "-" : format_bytes(count); };
  std::string text = fmt::format("\n{:<31}{:>9}{:>10}{:>10}{:>10}{}", "what else fits, fastest first:", "a step", "device", "host", "nvme",
                                 writes ? "   written" : "");
  for (const Alternative& one : alternatives) {
    text += fmt::format("\n  {:<29}{:>9}{:>10}{:>10}{:>10}", one.flag, format_duration(one.seconds), bytes(one.total[0]),
                        bytes(one.total[1]), bytes(one.total[2]));
    if (writes) text += fmt::format("{:>10}", bytes(one.nvme_written_bytes));
  }
  return text;
}

ClusterReport cluster_of(const PlanConfig& config, const Session& session, const Rates& rates) {
  const parallel::Plan& plan = session.chosen();
  return {.cluster = parse_cluster(*config.cluster, "--cluster"),
          .weight = plan.scheduling.format.weight,
          .tf32 = config.tf32_matmul,
          .fp8 = session.source().config.fp8,
          .block_flops = rates.flops,
          .between_ranks_bytes_per_s = rates.all_gather_bytes_per_s};
}

}  // namespace

PlanReport report_of(const PlanConfig& config, Session& session, Pace pace, std::string command) {
  const parallel::Plan& plan = session.chosen();
  const Rates& rates = session.prediction().rates();
  const StepCost& cost = session.prediction().step(plan.train);
  PlanReport report;
  report.rows = plan.rows;
  report.total_bytes = plan.total;
  report.budget_bytes = session.budgets().bytes;
  report.moved = plan.moved_per_step();
  report.pace = std::move(pace);
  report.reads_images = session.model().reads_images();
  report.global_batch = config.global_batch();
  report.sequence_length = *config.sequence_length;
  report.endurance_bytes = config.run->endurance_bytes;
  report.bound_by = cost.account.bound_by();
  report.computing_share = cost.share(cost.computing_s);
  for (size_t l = 0; l < parallel::kLanes; ++l) report.lane_shares[l] = cost.share(cost.account.busy_s[l]);
  report.nvme_write_price_s = rates.write_price_s(static_cast<double>(report.moved.written[2]));
  report.ranks = plan.scheduling.sharding.ranks * plan.scheduling.pipeline.ranks;
  report.pipeline_stages = plan.scheduling.pipeline.ranks;
  report.zero_stage = plan.scheduling.sharding.stage;
  report.prefetch = plan.scheduling.prefetch;
  report.recompute = plan.placement.activations.front().recompute;
  report.instructions = plan.train.head.size() + plan.train.commit.size();
  report.choices = session.choices();
  const std::vector<Alternative>& others = session.alternatives();
  report.alternatives.assign(others.begin(), others.begin() + static_cast<i64>(std::min(others.size(), kMostAlternatives)));
  report.command = std::move(command);
  if (config.roofline) report.roofline = make_roofline(plan, session.source().config);
  report.memory = memory_table(plan, session.budgets());
  if (config.cluster) report.cluster = cluster_of(config, session, rates);
  if (config.program) report.program = program_text(plan.train);
  return report;
}

Json plan_json(const PlanReport& report) {
  const Pace& pace = report.pace;
  Json out;
  for (const parallel::PlanRow& row : report.rows) out["rows"].push_back({{"what", row.what}, {"bytes", by_tier(row.bytes)}});
  out["total_bytes"] = by_tier(report.total_bytes);
  out["budget_bytes"] = by_tier(report.budget_bytes);
  out["read_bytes_per_step"] = by_tier(report.moved.read);
  out["written_bytes_per_step"] = by_tier(report.moved.written);
  out["exchanged_bytes_per_step"] = report.moved.exchanged;
  out["sent_bytes_per_step"] = report.moved.sent;
  out["tokens_per_step"] = pace.tokens_per_step;
  out["predicted_step_s"] = pace.step_s;
  out["computing_share"] = report.computing_share;
  out["lane_shares"] = json_of_lanes(report);
  out["steps"] = or_null(pace.steps);
  out["nvme_written_per_day"] = pace.wear.bytes_per_day;
  out["days_to_endurance"] = or_null(pace.wear.days);
  out["nvme_write_price_s"] = report.nvme_write_price_s;
  out["ranks"] = report.ranks;
  out["pipeline_stages"] = report.pipeline_stages;
  out["zero_stage"] = report.zero_stage;
  out["prefetch"] = report.prefetch;
  out["recompute"] = report.recompute;
  out["instructions"] = report.instructions;
  out["alternatives"] = json_of(report.alternatives);
  out["command"] = report.command;
  if (report.cluster) out["cluster"] = cluster_json(*report.cluster);
  if (report.roofline) out["roofline"] = json_of(*report.roofline);
  return out;
}

std::string plan_text(const PlanReport& report) {
  std::string text =
      "it fits:\n" + report.memory + (report.cluster ? cluster_text(*report.cluster) : "") + moved_text(report) + "\n" + pace_text(report);
  for (const std::string& line : report.choices) text += "\n  " + line;
  text += lanes_text(report) + alternatives_text(report.alternatives);
  text += "\nto train like this:\n  " + report.command;
  if (report.roofline) text += "\n" + to_text(*report.roofline);
  if (!report.program.empty()) text += "\n" + report.program;
  return text;
}

std::vector<std::string> pace_lines(const PlanReport& report) {
  return {pace_text(report), moved_text(report),
          fmt::format("predicted: {} a step, bound by {}; computing takes {:.0f} % of the step", format_duration(report.pace.step_s),
                      to_string(report.bound_by), 100 * report.computing_share)};
}

std::string train_command(const PlanConfig& given, bool on_nvme) {
  std::string text = "spillway train";
  if (given.cluster) {
    const Cluster c = parse_cluster(*given.cluster, "--cluster");
    if (c.nodes > 1) text = fmt::format("srun --nodes={} --ntasks-per-node={} {}", c.nodes, c.gpus, text);
  }
  for (const std::string& word : given.train_words) {
    const Option* flag = word.starts_with("--") ? find_option(Command::train, word.substr(2)) : nullptr;
    if (flag == nullptr || !flag->only_prints) text += " " + shell_word(word);
  }
  if (given.ranks > 1 && text.starts_with("spillway")) text += fmt::format(" --ranks {}", given.ranks);
  if (given.cluster && on_nvme) text += " --nvme PATH";
  if (given.data.empty()) text += " --data PATH";
  return text;
}

}  // namespace spillway::app
