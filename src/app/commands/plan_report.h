// The result of `plan`: what it shows of a plan that fits, as plain values, as JSON and as text.
#pragma once
#include <array>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/cluster_report.h"
#include "app/names/names.h"
#include "app/roofline/roofline.h"
#include "trainer/record/wear.h"
#include "trainer/run/session.h"

namespace spillway::app {

/// Pace is the predicted pace of a run.
struct Pace {
  i64 tokens_per_step = 0;
  double step_s = 0;
  std::optional<i64> steps;  // from --steps, or from the epochs of the data
  Wear wear;                 // wear of the drives by all ranks of this node
};

/// The plan of the first rank; no other rank's part is larger. Bytes are those of one rank.
struct PlanReport {
  using ByTier = std::array<i64, offload::kTiers>;
  std::vector<parallel::PlanRow> rows;  // what each tier holds
  ByTier total_bytes{}, budget_bytes{};
  parallel::TierBytes moved;  // in a step
  Pace pace;
  bool reads_images = false;
  i64 global_batch = 0, sequence_length = 0;           // rows of a step; tokens of a row
  std::optional<i64> endurance_bytes;                  // rated writes of a drive, if they were given
  parallel::Resource bound_by{};                       // what limits the time of a step
  double computing_share = 0;                          // part of the step in which the device computes
  std::array<double, parallel::kLanes> lane_shares{};  // part of the step in which each lane is busy
  double nvme_write_price_s = 0;  // seconds that the planner adds to the time of a step for its writes to nvme, to spare the drive
  i64 ranks = 1, pipeline_stages = 1, zero_stage = 0, prefetch = 0;
  bool recompute = false;
  size_t instructions = 0;
  std::vector<std::string> choices;  // what was chosen and why, one line each
  std::vector<Alternative> alternatives;
  std::string command;                   // from train_command()
  std::optional<ClusterReport> cluster;  // set with --cluster
  std::optional<Roofline> roofline;      // set with --roofline
  std::string memory;                    // memory_table()
  std::string program;                   // the instructions, with --program
};

/// Plans, without weights or data and without writing anything but the page of --html. `log` receives remarks. Throws Error(refused) if
/// nothing fits, and Error(usage) or Error(data) for settings or a model that cannot be used.
PlanReport make_plan(const PlanConfig& config, const std::function<void(const std::string&)>& log);

/// Returns the report of the plan that `session` chose for the resolved options. `pace` and `command` are stored as they are.
PlanReport report_of(const PlanConfig& config, Session& session, Pace pace, std::string command);

/// Returns the report as `plan --json` prints it.
nlohmann::ordered_json plan_json(const PlanReport& report);
std::string plan_text(const PlanReport& report);
/// Returns lines that say what a step consists of and how long all steps take.
std::vector<std::string> pace_lines(const PlanReport& report);

/// Returns a shell command for the planned training. It has train's flags as they were given, without
/// those of plan's output. PATH stands for missing paths. `on_nvme` says whether the plan uses nvme.
std::string train_command(const PlanConfig& given, bool on_nvme);

}  // namespace spillway::app
