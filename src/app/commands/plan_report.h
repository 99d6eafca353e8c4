// Formats what `spillway plan` shows of a plan that fits, as text and as JSON. The functions have no state.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/names.h"
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

struct PlanReport {
  const PlanConfig& config;  // resolved options
  const Session& session;
  const Rates& rates;
  const StepCost& cost;
  Pace pace;
  std::vector<Alternative> alternatives;
  std::string command;               // result of train_command()
  std::optional<Roofline> roofline;  // set only with --roofline
};

std::string plan_json(const PlanReport& report);
std::string plan_text(const PlanReport& report);
/// Returns lines that say what a step consists of and how long all steps take.
std::vector<std::string> pace_lines(const PlanReport& report);

/// Returns a shell command for the planned training. It has train's flags as they were given, without
/// those of plan's output. PATH stands for missing paths. `on_nvme` says whether the plan uses nvme.
std::string train_command(const PlanConfig& given, bool on_nvme);

}  // namespace spillway::app
