// A rank's share of its node's cores. For a rank's first thread, before it starts others, which inherit it.
#pragma once
#include <vector>

#include "app/config.h"
#include "app/launcher.h"

namespace spillway::app {

/// Local rank `local_rank`'s of `local_ranks`: neighbours in the order of their numbers; where there are fewer cores than ranks, one.
std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_ranks);

/// Binds this thread to its rank's share where --bind or the launcher wants that, and gives the rank as many threads as are its part of the
/// grant unless --threads says how many. mpirun and srun bind themselves.
void take_share_of_node(RanksConfig& config, const Launcher& launcher, const Host& host);

}  // namespace spillway::app
