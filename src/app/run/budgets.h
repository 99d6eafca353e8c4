// What the tiers of a session may take of this node: of the memory granted to the process or free on the GPU, within what the flags say,
// and of the scratch paths. Reads the Host alone. Values.
#pragma once
#include "app/node/host.h"
#include "app/plan/nvme_paths.h"
#include "app/plan/planner.h"
#include "app/ranks/device_choice.h"

namespace spillway::app {

/// Of a rank that is one of `local_ranks` here; nvme is 0. Errors are split_grant's and gpu_budgets'.
TierBudgets memory_budgets(const ResourceConfig& config, const ChosenDevice& device, int local_ranks, const Host& host = {});

/// And what the paths give.
void add_nvme(TierBudgets& budgets, const NvmePaths& nvme);

/// Where nobody split the memory between device and host, as this plan does.
void split_memory(TierBudgets& budgets, const parallel::Plan& plan);

}  // namespace spillway::app
