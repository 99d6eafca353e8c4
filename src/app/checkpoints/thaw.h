// Parameters that a run froze at first and trains since: --allow-change freeze. They begin with fresh optimizer state and count their own
// updates, as parameters that are added to an optimizer of PyTorch's on the way do (each has a `step` of its own, which bias corrections
// use). Values and pure functions.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/state/stepper.h"

namespace spillway::app {

struct Thaw {
  i64 updates = 0;  // that the run had applied before
  std::vector<std::string> parameters;
};

/// Names the parameters whose optimizer state in a checkpoint does not match the run that loads it, in the model's order.
struct FreezeChange {
  std::vector<std::string> thawed;  // trained now, without a state in it
  std::vector<std::string> frozen;  // with a state in it, which is dropped
};

/// Lines to be said of it.
std::vector<std::string> notes_of(const FreezeChange& change);

nlohmann::json to_json(const std::vector<Thaw>& thawed);
/// Reads the list that to_json() wrote. Any other JSON value gives an empty list.
std::vector<Thaw> thawed_of(const nlohmann::json& json);

/// Gives the parameters that were thawed rates of their own, with their group's values and the updates that they count from. Where a
/// parameter was thawed more than once, the last time counts. Behind the groups' own rates.
void count_own_updates(parallel::Update& update, const std::vector<Thaw>& thawed, const nn::Sequential& model);

}  // namespace spillway::app
