// Runs a command on one or several ranks. A rank is this process itself (a launcher such as srun or mpirun started it), a thread of this
// process, or a child process that this process starts.
#pragma once
#include <functional>

#include "app/flags/config.h"
#include "app/node/console.h"
#include "app/node/host.h"
#include "app/ranks/peers.h"

namespace spillway::app {

/// RankWork is the work of one rank. It returns the rank's exit status.
using RankWork = std::function<int(Console& console, const Peers& peers)>;

/// Runs `work` and returns the exit status. If a launcher started this process, or there is one rank only, `work` runs once, in this
/// process. If `given` asks for several ranks without a launcher, --communicator local runs each rank as a thread of this process. With
/// any other communicator `start` is called instead, which starts one process for each rank. `may_exit` is false if the process belongs
/// to another program. It must then not exit, so ranks that are threads are waited for however long they take (rank_threads.h).
int on_ranks(const RanksConfig& given, Console& console, const Host& host, const RankWork& work, const std::function<int()>& start,
             bool may_exit = true);

}  // namespace spillway::app
