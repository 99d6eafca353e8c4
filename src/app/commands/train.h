// What plan takes from train.
#pragma once
#include "app/flags/config.h"
#include "app/plan/planner.h"
#include "app/run/session.h"

namespace spillway::app {

PlanWishes wishes_of(const TrainConfig& config);
/// Of a resolved configuration.
Workload work_of(const TrainConfig& config);

}  // namespace spillway::app
