// Parameters that a run froze at first and now trains, after --allow-change freeze. They start with fresh optimizer state and count their
// own updates, like parameters that are added to a PyTorch optimizer later: each has its own `step`, which bias corrections use. Values and
// pure functions.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/state/stepper.h"

namespace spillway::app {

struct Thaw {
  i64 updates = 0;  // updates that the run had applied before these parameters were trained
  std::vector<std::string> parameters;
};

/// Names the parameters whose optimizer state in a checkpoint does not match the run that loads it, in the model's order.
struct FreezeChange {
  std::vector<std::string> thawed;  // trained now, but without state in the checkpoint
  std::vector<std::string> frozen;  // frozen now; their state in the checkpoint is dropped
};

/// Returns lines for the user that describe the change.
std::vector<std::string> notes_of(const FreezeChange& change);

nlohmann::json to_json(const std::vector<Thaw>& thawed);
/// Reads the list that to_json() wrote. Any other JSON value gives an empty list.
std::vector<Thaw> thawed_of(const nlohmann::json& json);

/// Adds OwnRates for the thawed parameters to `update`, with their group's values and with the number of updates from which they count. If
/// a parameter was thawed more than once, the last time counts. To be called after the groups' own rates have been set.
void count_own_updates(parallel::Update& update, const std::vector<Thaw>& thawed, const nn::Sequential& model);

}  // namespace spillway::app
