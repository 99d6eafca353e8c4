// A rank's share of its node's cores. For a rank's first thread, before it starts others, which inherit it. Where cores are, and near which
// GPU, is read below /sys; where that says nothing all are alike.
#pragma once
#include <string>
#include <vector>

#include "app/node/host.h"
#include "app/node/launcher.h"
#include "base/types.h"

namespace spillway::app {

/// As the kernel writes them: "0-3,8,10-11" is 0, 1, 2, 3, 8, 10, 11. Empty for anything else.
std::vector<int> parse_core_list(const std::string& text);

/// Local rank `local_rank`'s of `local_ranks`: physical cores with all their hyperthreads, neighbours in the order of NUMA nodes and
/// sockets; where there are fewer physical cores than ranks their hyperthreads are dealt, and where there are fewer of those, one is a
/// rank's. `cores`, by their numbers ascending, are those that may be dealt.
std::vector<int> share_of_cores(const Host& host, const std::vector<int>& cores, int local_rank, int local_ranks);

/// Those of the NUMA node at which a PCI device is, named as below /sys/bus/pci/devices ("0000:3b:00.0"). Empty where nobody knows.
std::vector<int> cores_near(const Host& host, const std::string& pci_device);

/// What --bind comes to for one rank of a node; empty: nothing is bound. `allowed`: by affinity. `gpus`: the PCI devices of those that the
/// ranks of this node see, of which local rank r takes the one at r modulo their number; empty: they compute on CPUs.
/// none: nothing. cores: a share of the cores near the rank's GPU, which ranks with GPUs at the same node have in common, or of all cores.
/// numa: all cores near the GPU; without one those of a NUMA node, of which each has its ranks. auto: cores where the launcher deals none.
std::vector<int> cores_of_rank(const Host& host, const std::string& bind, const Launcher& launcher, const std::vector<int>& allowed,
                               const std::vector<std::string>& gpus);

/// Binds this thread to cores_of_rank(). How many threads a rank has follows from the cores it may run on, and who shares them (grant.h).
void bind_to_share(const std::string& bind, const Launcher& launcher, const Host& host, const std::vector<std::string>& gpus);

}  // namespace spillway::app
