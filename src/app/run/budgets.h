// Computes how many bytes each tier (device, host, nvme) of a session may use on this node. The limits are the memory granted to the
// process, the free memory of its GPU, the memory flags and the room on the scratch paths. Reads only the Host; everything here is a value.
#pragma once
#include "app/node/host.h"
#include "app/plan/nvme_paths.h"
#include "app/plan/planner.h"
#include "app/ranks/device_choice.h"

namespace spillway::app {

/// Returns the device and host budgets of a rank that is one of `local_ranks` on this node; the nvme budget is 0. Throws the errors of
/// split_grant and gpu_budgets.
TierBudgets memory_budgets(const ResourceConfig& config, const ChosenDevice& device, int local_ranks, const Host& host = {});

/// Sets the nvme budget to what the scratch paths offer, and notes whether they are memory (tmpfs).
void add_nvme(TierBudgets& budgets, const NvmePaths& nvme);

/// If no flag split the memory between device and host, splits it as `plan` needs: the host tier gets what the plan uses there (on tmpfs
/// the nvme tier's bytes count too), and the device tier gets the rest.
void split_memory(TierBudgets& budgets, const parallel::Plan& plan);

}  // namespace spillway::app
