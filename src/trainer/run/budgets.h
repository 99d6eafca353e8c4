// Computes how many bytes each tier (device, host, nvme) of a session may use on this node. The limits
// are the memory granted to the process, the free memory of its GPU, the memory flags and the free
// space on the scratch paths. The machine is read only through Host. The functions keep no state.
#pragma once
#include "trainer/node/host.h"
#include "trainer/plan/nvme_paths.h"
#include "trainer/plan/planner.h"
#include "trainer/ranks/device_choice.h"

namespace spillway::trainer {

/// Returns the device and host budgets of one rank if `local_ranks` ranks share this node. The
/// nvme budget is 0 until add_nvme() sets it. Throws the errors of split_grant and gpu_budgets.
TierBudgets memory_budgets(const ResourceConfig& config, const ChosenDevice& device, int local_ranks, const Host& host = {});

/// Sets the nvme budget to the bytes that the scratch paths offer. Also records in `budgets` whether a path is a tmpfs, whose files take
/// host memory.
void add_nvme(TierBudgets& budgets, const NvmePaths& nvme);

/// Divides one memory grant between the device tier and the host tier, unless a flag has divided it
/// (TierBudgets::host_from_device). The host tier gets the bytes that `plan` stores there. If the nvme
/// tier is a tmpfs, the plan's nvme bytes are subtracted too. The device tier gets all remaining bytes.
void split_memory(TierBudgets& budgets, const parallel::Plan& plan);

}  // namespace spillway::trainer
