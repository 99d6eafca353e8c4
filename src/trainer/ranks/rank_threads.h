// Implements --communicator local: several ranks run as threads of this process and communicate through its memory. A failure of any rank
// is reported as one error, as with ranks that are processes (supervise.h). A thread cannot be killed alone: whatever kills one rank kills
// all. If a rank hangs, the process ends without waiting for that rank, unless the process is another program that uses Spillway as a
// library.
#pragma once
#include <functional>
#include <memory>

#include "parallel/comm/communicator.h"
#include "trainer/node/messages.h"

namespace spillway::trainer {

struct RankThreads {
  int ranks = 2;
  double timeout_s = 60;  // seconds that a rank waits for an answer of another rank
  double grace_s = 15;    // seconds that the other ranks may take to end after one has failed
  /// Ends the process if ranks take longer than grace_s; null if the process belongs to another program, which must not end.
  void (*leave)(int status) = nullptr;
};

/// RankBody is the work of one rank; it returns the rank's exit status. `end` is the
/// rank's communicator for the group of all ranks, or null if there is only one rank.
using RankBody = std::function<int(int rank, std::unique_ptr<parallel::Communicator> end)>;

/// Runs `body` for each rank on a separate thread and waits until all have ended. Returns the largest of their exit statuses. Throws the
/// exception of the first rank that failed by itself, not because of another rank. If ranks do not end within the grace period, prints a
/// warning that names them, and ends the process or goes on waiting, as `leave` says.
int run_rank_threads(const RankThreads& threads, Messages& messages, const RankBody& body);

}  // namespace spillway::trainer
