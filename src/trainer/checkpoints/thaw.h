// Handles parameters that a run froze at first and now trains, after --allow-change freeze. They start with fresh optimizer state, and
// their updates are counted separately, since bias corrections depend on the count. PyTorch does the same for parameters that are added to
// an optimizer later: each has its own `step`. Values and pure functions.
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

/// Names, in the model's order, the parameters for which a checkpoint has optimizer state but the run needs none, or the opposite.
struct FreezeChange {
  std::vector<std::string> thawed;  // trained now, but without state in the checkpoint
  std::vector<std::string> frozen;  // frozen now; their state in the checkpoint is dropped
};

/// Returns lines for the user that describe the change.
std::vector<std::string> notes_of(const FreezeChange& change);

nlohmann::json to_json(const std::vector<Thaw>& thawed);
/// Reads the list that to_json() wrote. Any other JSON value gives an empty list.
std::vector<Thaw> thawed_of(const nlohmann::json& json);

/// Adds OwnRates for the thawed parameters to `update`. They have the rates of the parameter's --optimizer-group, and the number of updates
/// that were applied before the parameter was trained. If a parameter was thawed more than once, the last time counts. To be called after
/// the groups' own rates have been set.
void count_own_updates(parallel::Update& update, const std::vector<Thaw>& thawed, const nn::Sequential& model);

}  // namespace spillway::trainer
