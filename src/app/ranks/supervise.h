// Starts several ranks on this node without a launcher. The ranks are child processes of this program with
// the same arguments; they find each other through environment variables (launcher.h, join.h). The
// supervising process stands for all of them: it forwards signals to the ranks and reports a failure of any
// rank as one error. A rank that dies, is stopped or hangs ends all ranks, and no rank outlives this process.
#pragma once
#include <string>
#include <vector>

#include "app/console/console.h"
#include "app/names/names.h"
#include "trainer/node/host.h"

namespace spillway::app {

struct Supervision {
  int ranks = 2;
  std::vector<std::string> args;  // command-line arguments of every rank
  double timeout_s = 60;          // seconds that a rank may be stopped (SIGSTOP) before all ranks are ended
  double grace_s = 15;            // seconds that the other ranks may take to end after one rank has ended
};

/// Starts the ranks, waits until all have ended and returns the largest of their exit statuses. Throws the Error
/// of the first rank that failed by itself. If a rank died or hung, throws Error(peer), which says what the rank
/// was doing, its last step, and the cause as far as it is known. The calling process must have no other thread.
int supervise(const Supervision& supervision, Console& console, const Host& host);

}  // namespace spillway::app
