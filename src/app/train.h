// What plan takes from train.
#pragma once
#include "app/config.h"
#include "app/planner.h"
#include "app/session.h"

namespace spillway::app {

PlanWishes wishes_of(const TrainConfig& config);
/// Of a resolved configuration.
Workload work_of(const TrainConfig& config);

}  // namespace spillway::app
