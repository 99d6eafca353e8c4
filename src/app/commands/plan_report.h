// What `plan` shows of a plan that fits, for people and as JSON. Functions without state.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/commands/plan_alternatives.h"
#include "app/record/wear.h"
#include "app/roofline/roofline.h"
#include "app/run/session.h"

namespace spillway::app {

/// What the predicted pace comes to.
struct Pace {
  i64 tokens_per_step = 0;
  double step_s = 0;
  std::optional<i64> steps;  // of --steps, or of the data's epochs
  Wear wear;                 // of all ranks of this node
};

struct PlanReport {
  const PlanConfig& config;  // resolved
  const Session& session;
  const Rates& rates;
  const StepCost& cost;
  Pace pace;
  std::vector<Alternative> alternatives;
  std::string command;               // train_command()
  std::optional<Roofline> roofline;  // where it was asked for
};

std::string plan_json(const PlanReport& report);
std::string plan_text(const PlanReport& report);
/// What a step is and how long all take, a line each.
std::vector<std::string> pace_lines(const PlanReport& report);

/// The training that was planned, to be pasted into a shell: train's flags as they were given, without how this command prints. PATH
/// stands where something is missing. `on_nvme`: the plan uses it.
std::string train_command(const PlanConfig& given, bool on_nvme);

}  // namespace spillway::app
