// Runs a command on one or several ranks. A rank is this process itself (a launcher such as srun or mpirun started it), a thread of this
// process, or a child process that this process starts.
#pragma once
#include <functional>

#include "trainer/node/host.h"
#include "trainer/node/messages.h"
#include "trainer/ranks/peers.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// RankWork is the work of one rank. It returns the rank's exit status.
using RankWork = std::function<int(const Peers& peers)>;

/// Runs `work` and returns the exit status. If a launcher started this process, or there is one rank only, `work` runs once, in this
/// process. If `given` asks for several ranks without a launcher, --communicator local runs each rank as a thread of this process; with any
/// other communicator `start` is called instead, which starts one process for each rank. `leave` ends the process if ranks that are threads
/// do not end (rank_threads.h); it is null if the process belongs to another program.
int on_ranks(const RanksConfig& given, Messages& messages, const Host& host, const RankWork& work, const std::function<int()>& start,
             void (*leave)(int status) = nullptr);

}  // namespace spillway::trainer
