// Handles parameters that a run froze at first and trains now, after --allow-change freeze. They start with fresh optimizer
// state, and their updates are counted separately, since bias corrections depend on the count. PyTorch does the same for
// parameters that are added to an optimizer later: each has its own `step`. All types are values, all functions pure.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/state/stepper.h"

namespace spillway::trainer {

struct Thaw {
  i64 updates = 0;  // updates that the run had applied before these parameters were trained
  std::vector<std::string> parameters;
};

/// FreezeChange names, in the model's order, the parameters whose optimizer state a checkpoint
/// has but the run does not need, and those whose state the run needs but the checkpoint lacks.
struct FreezeChange {
  std::vector<std::string> thawed;  // parameters that the run trains, but for which the checkpoint has no optimizer state
  std::vector<std::string> frozen;  // parameters that are frozen in the run; their optimizer state in the checkpoint is not read
};

/// Returns lines for the user that describe the change.
std::vector<std::string> notes_of(const FreezeChange& change);

nlohmann::json to_json(const std::vector<Thaw>& thawed);
/// Reads the list that to_json() wrote. Any other JSON value gives an empty list.
std::vector<Thaw> thawed_of(const nlohmann::json& json);

/// Adds OwnRates for the thawed parameters to `update`. They have the rates of the parameter's --optimizer-group,
/// and the number of updates that were applied before the parameter was trained. For a parameter that was thawed
/// more than once, the last time counts. Must be called after the rates of the groups have been set.
void count_own_updates(parallel::Update& update, const std::vector<Thaw>& thawed, const nn::Sequential& model);

}  // namespace spillway::trainer
