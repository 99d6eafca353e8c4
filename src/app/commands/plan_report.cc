#include "app/commands/plan_report.h"

#include <fmt/format.h>

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
  const parallel::TierBytes moved = report.session.chosen().moved_per_step();
  std::string text = fmt::format("a step moves: host read {} written {}, nvme read {} written {}", format_bytes(moved.read[1]),
                                 format_bytes(moved.written[1]), format_bytes(moved.read[2]), format_bytes(moved.written[2]));
  if (report.config.ranks > 1) text += fmt::format(", exchanged between ranks {}", format_bytes(moved.exchanged));
  if (report.config.pipeline_stages > 1) text += fmt::format(", sent to other stages {}", format_bytes(moved.sent));
  return text;
}

// Returns the seconds that the planner adds to the time of a step when it compares plans, for the bytes that this rank writes to nvme. The
// addition favours plans that wear the drive less.
double write_price_s(const PlanReport& report) {
  return report.rates.write_price_s(static_cast<double>(report.session.chosen().moved_per_step().written[2]));
}

std::string pace_text(const PlanReport& report) {
  const TrainConfig& config = report.config;
  const Pace& pace = report.pace;
  const bool images = report.session.model().reads_images();
  std::string text = images ? fmt::format("a step is {} images", config.global_batch())
                            : fmt::format("a step is {} sequences of {} tokens, {} in all", config.global_batch(), *config.sequence_length,
                                          pace.tokens_per_step);
  if (pace.steps) text += fmt::format("; {} steps take {}", *pace.steps, format_duration(pace.step_s * static_cast<double>(*pace.steps)));
  if (pace.wear.bytes_per_step > 0)
    text += fmt::format(
        "\nwritten to nvme: {}; to spare the drive, the planner adds {} to the time of a step when it compares plans, which is {:.0f} % of "
        "the time that the writes take",
        to_text(pace.wear, config.run->endurance_bytes), format_duration(write_price_s(report)), 100 * kWritePrice);
  return text;
}

// Returns the share of the step for which each lane (executing thread) is busy. Idle lanes are not listed.
std::string lanes_text(const StepCost& cost) {
  std::string text;
  for (size_t l = 0; l < parallel::kLanes; ++l) {
    const double share = cost.share(cost.account.busy_s[l]);
    if (share > 0)
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "\n  lanes are busy: " : ", ", to_string(static_cast<parallel::Lane>(l)),
                          100 * share);
  }
  return text;
}

Json json_of_lanes(const StepCost& cost) {
  Json shares;
  for (size_t l = 0; l < parallel::kLanes; ++l)
    shares[std::string(to_string(static_cast<parallel::Lane>(l)))] = cost.share(cost.account.busy_s[l]);
  return shares;
}

std::string alternatives_text(const std::vector<Alternative>& alternatives) {
  if (alternatives.empty()) return "";
  std::string text = "\nwhat else fits, fastest first:";
  for (const Alternative& one : alternatives) {
    text += fmt::format("\n  {:<32}{} a step; device {}, host {}, nvme {}", one.flag, format_duration(one.seconds),
                        format_bytes(one.total[0]), format_bytes(one.total[1]), format_bytes(one.total[2]));
    if (one.nvme_written_bytes > 0) text += fmt::format(", {} written to nvme", format_bytes(one.nvme_written_bytes));
  }
  return text;
}

// Describes the cluster and the rates with which its times are predicted. The rates are equal for all GPUs, whatever the GPU's name.
std::string cluster_text(const Cluster& c, const Rates& rates) {
  std::string text = fmt::format("for {} node{}, each with {} x {} of {} GPU memory, {} of host memory", c.nodes, c.nodes == 1 ? "" : "s",
                                 c.gpus, c.gpu, format_bytes(c.gpu_bytes), format_bytes(c.host_bytes));
  if (c.nvme_bytes) text += fmt::format(" and {} of nvme", format_bytes(*c.nvme_bytes));
  text += fmt::format(
      ": {} ranks; times are predicted with these constants, whatever the name of the GPU: {:.0f} TFLOP/s in bf16 ({:.0f} in fp32), of "
      "which blocks reach 60 %, {:.0f} GB/s in GPU memory, {:.0f} GB/s between GPU and host",
      c.ranks(), kGpuFlopsBf16 / 1e12, kGpuFlopsF32 / 1e12, kGpuMemoryBytesPerS / 1e9, kLinkBytesPerS / 1e9);
  if (c.nvme_bytes)
    text += fmt::format(", {:.2f} GB/s read from nvme and {:.2f} GB/s written to it by each rank", rates.disk_read_bytes_per_s / 1e9,
                        rates.disk_write_bytes_per_s / 1e9);
  return text + fmt::format(", {:.0f} GB/s between all ranks together; times of the CPU assume the cores of this machine\n",
                            rates.all_gather_bytes_per_s / 1e9);
}

}  // namespace

std::string plan_json(const PlanReport& report) {
  const parallel::Plan& plan = report.session.chosen();
  const parallel::TierBytes moved = plan.moved_per_step();
  const Pace& pace = report.pace;
  Json out;
  for (const parallel::PlanRow& row : plan.rows) out["rows"].push_back({{"what", row.what}, {"bytes", by_tier(row.bytes)}});
  out["total_bytes"] = by_tier(plan.total);
  out["budget_bytes"] = by_tier(report.session.budgets().bytes);
  out["read_bytes_per_step"] = by_tier(moved.read);
  out["written_bytes_per_step"] = by_tier(moved.written);
  out["exchanged_bytes_per_step"] = moved.exchanged;
  out["sent_bytes_per_step"] = moved.sent;
  out["tokens_per_step"] = pace.tokens_per_step;
  out["predicted_step_s"] = pace.step_s;
  out["computing_share"] = report.cost.share(report.cost.computing_s);
  out["lane_shares"] = json_of_lanes(report.cost);
  out["steps"] = or_null(pace.steps);
  out["nvme_written_per_day"] = pace.wear.bytes_per_day;
  out["days_to_endurance"] = or_null(pace.wear.days);
  out["nvme_write_price_s"] = write_price_s(report);
  out["ranks"] = plan.scheduling.sharding.ranks * plan.scheduling.pipeline.ranks;
  out["pipeline_stages"] = plan.scheduling.pipeline.ranks;
  out["zero_stage"] = plan.scheduling.sharding.stage;
  out["prefetch"] = plan.scheduling.prefetch;
  out["recompute"] = plan.placement.activations.front().recompute;
  out["instructions"] = plan.train.head.size() + plan.train.commit.size();
  out["alternatives"] = json_of(report.alternatives);
  out["command"] = report.command;
  if (report.roofline) out["roofline"] = json_of(*report.roofline);
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string plan_text(const PlanReport& report) {
  const Session& session = report.session;
  std::string text = "it fits:\n" + memory_table(session.chosen(), session.budgets());
  if (report.config.cluster) text += cluster_text(parse_cluster(*report.config.cluster, "--cluster"), report.rates);
  text += moved_text(report) + "\n" + pace_text(report);
  for (const std::string& line : session.choices()) text += "\n  " + line;
  text += lanes_text(report.cost) + alternatives_text(report.alternatives);
  text += "\nto train like this:\n  " + report.command;
  if (report.roofline) text += "\n" + to_text(*report.roofline);
  if (report.config.program) text += "\n" + program_text(session.chosen().train);
  return text;
}

std::vector<std::string> pace_lines(const PlanReport& report) {
  const StepCost& cost = report.cost;
  std::vector<std::string> lines = {pace_text(report), moved_text(report)};
  lines.push_back(fmt::format("predicted: {} a step, bound by {}; computing takes {:.0f} % of the step", format_duration(cost.seconds),
                              to_string(cost.account.bound_by()), 100 * cost.share(cost.computing_s)));
  return lines;
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
