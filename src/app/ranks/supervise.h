// Several ranks on this node without a launcher: processes of this program with the same arguments, which find each other by what stands in
// their environment (launcher.h, join.h). Whoever started us deals with one process: signals are handed on, and what goes wrong in any rank
// is one error. A rank that dies, stops or hangs ends all of them; none outlives this process.
#pragma once
#include <string>
#include <vector>

#include "app/node/console.h"
#include "app/node/host.h"

namespace spillway::app {

struct Supervision {
  int ranks = 2;
  std::vector<std::string> args;  // of every rank
  double timeout_s = 60;          // for a stopped rank to go on
  double grace_s = 15;            // for the others to see that one is gone, and end
};

/// Until all have ended: the exit status they agree on. An Error is that of the first rank that failed by itself; Error(peer) names one
/// that died or hung: what it was doing, its last step, the cause as far as known. The caller has one thread.
int supervise(const Supervision& supervision, Console& console, const Host& host);

}  // namespace spillway::app
