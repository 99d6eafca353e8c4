// What plan takes from train.
#pragma once
#include "app/config.h"
#include "app/planner.h"

namespace spillway::app {

PlanWishes wishes_of(const TrainConfig& config);

}  // namespace spillway::app
