// A rank's share of its node's cores. For a rank's first thread, before it starts others, which inherit it.
#pragma once
#include <string>
#include <vector>

#include "app/node/launcher.h"
#include "base/types.h"

namespace spillway::app {

/// Local rank `local_rank`'s of `local_ranks`: neighbours in the order of their numbers; where there are fewer cores than ranks, one.
std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_ranks);

/// Binds this thread to its rank's share where --bind or, at auto, the launcher wants that: mpirun and srun bind themselves. How many
/// threads a rank has follows from the cores it may run on, and who shares them (grant.h).
void bind_to_share(const std::string& bind, const Launcher& launcher);

}  // namespace spillway::app
