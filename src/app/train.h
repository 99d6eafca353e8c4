// Training as one of several ranks, and what plan takes from train.
#pragma once
#include "app/config.h"
#include "app/console.h"
#include "app/peers.h"
#include "app/planner.h"

namespace spillway::app {

PlanWishes wishes_of(const TrainConfig& config);

/// The whole command on this rank; all ranks call it. The first one alone speaks, and what all fail with it alone throws: the others return
/// the status.
int run_train(const TrainConfig& config, Console& console, const Peers& peers);

}  // namespace spillway::app
