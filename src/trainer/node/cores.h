// Divides a node's cores among its ranks and binds threads to them. A rank's first thread binds itself before it starts other threads,
// which inherit the binding. The topology of cores and GPUs is read from /sys; if it is not there, all cores count as equal.
#pragma once
#include <string>
#include <vector>

#include "base/types.h"
#include "trainer/node/host.h"
#include "trainer/node/launcher.h"

namespace spillway::trainer {

/// Parses a list of cores as the kernel writes it: "0-3,8,10-11" is 0, 1, 2, 3, 8, 10, 11. Returns an empty list for other text.
std::vector<int> parse_core_list(const std::string& text);
/// Returns cores in ascending order as such a list, and "?" for no cores.
std::string core_list_text(const std::vector<int>& cores);

/// Returns the share of `cores` for local rank `local_rank` of `local_ranks`: whole physical cores with all their hyperthreads,
/// adjacent in the order of NUMA nodes and sockets. With fewer physical cores than ranks, hyperthreads are divided instead. With fewer
/// hyperthreads than ranks, each rank gets one hyperthread, which it shares with other ranks. `cores` must be in ascending order.
std::vector<int> share_of_cores(const Host& host, const std::vector<int>& cores, int local_rank, int local_ranks);

/// Returns the cores of the NUMA node to which a PCI device is attached; empty if that is unknown. The device is named as in
/// /sys/bus/pci/devices ("0000:3b:00.0").
std::vector<int> cores_near(const Host& host, const std::string& pci_device);

/// Returns the cores to which one rank is bound, or an empty list if it is not bound. `allowed` are the cores of its affinity mask. `gpus`
/// are the PCI devices of the GPUs that the node's ranks see; local rank r uses the GPU with index r modulo their count. The list is empty
/// on the CPU backend. `bind` is the value of --bind:
/// - none: the rank is not bound.
/// - cores: a share of the cores near the rank's GPU, divided among the ranks whose GPUs are near the same cores. Without GPUs, or if this
///   rank sees only one, a share of all cores.
/// - numa: all cores near the GPU. Without a GPU, the cores of one NUMA node; the ranks are spread over the NUMA nodes.
/// - auto: as `cores` if the launcher binds no cores itself, else as `none`.
std::vector<int> cores_of_rank(const Host& host, const std::string& bind, const Launcher& launcher, const std::vector<int>& allowed,
                               const std::vector<std::string>& gpus);

/// Binds this thread to the result of cores_of_rank(). `allowed` are the cores of the thread's affinity mask that a list in an environment
/// variable names; all, if there is no such list (thread_variables.h). A rank that cores_of_rank() does not bind is bound to that list. If
/// the variables ask for no pinning, `auto` is `none`. The number of threads of a rank is derived later from the cores that it may run on
/// (grant.h).
void bind_to_share(const std::string& bind, const Launcher& launcher, const Host& host, const std::vector<std::string>& gpus);

}  // namespace spillway::trainer
