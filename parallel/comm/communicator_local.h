// Communicators whose ranks are threads of one process. They serve for several ranks on one machine without GPUs and MPI, and for tests of
// everything that communicates. Data is read directly from the peers' buffers, without staging. The threads that move data serve all ranks
// (movers.h).
#pragma once
#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

struct LocalOptions {
  double timeout_s = 60;
  int threads = 1;  // threads that move data, per rank; in total never more than the machine's hardware threads
};

/// Returns one endpoint for each rank, in order; each goes to its own thread. An endpoint that is destroyed while others wait for it, or
/// before they do, counts as a rank that died. Its destructor waits until none of its data is being moved. Throws Error(usage) for a number
/// of ranks or threads below 1 and for a time-out that is not positive.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks, const LocalOptions& options = {});

}  // namespace spillway::parallel
