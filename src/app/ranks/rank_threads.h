// Several ranks as threads of this process, which talk through its memory: --communicator local. As with processes (supervise.h), whatever
// goes wrong in any of them is one error. A thread cannot be killed alone: what kills one kills all, and one that hangs is left behind.
#pragma once
#include <functional>
#include <memory>

#include "app/node/console.h"
#include "parallel/comm/communicator.h"

namespace spillway::app {

struct RankThreads {
  int ranks = 2;
  double timeout_s = 60;  // for a peer
  double grace_s = 15;    // for the others to see that one has failed, and end
};

/// One rank's exit status. `end`: of the group of all; null for one rank.
using RankBody = std::function<int(int rank, std::unique_ptr<parallel::Communicator> end)>;

/// Each rank on a thread of its own, until all have ended: the exit status they agree on. Throws what the first rank threw that failed by
/// itself. Ends the process, after a warning that names them, when ranks do not end within the grace.
int run_rank_threads(const RankThreads& threads, Console& console, const RankBody& body);

}  // namespace spillway::app
