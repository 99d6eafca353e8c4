// Makes communicators whose ranks are threads of one process. They serve to run several ranks on one machine
// without GPUs and MPI, and to test everything that communicates. Data is read directly from the other ranks'
// buffers, without staging. One pool of threads moves the data of all ranks (movers.h).
#pragma once
#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

struct LocalOptions {
  double timeout_s = 60;
  int threads = 1;  // threads that move data, for each rank; their total never exceeds the machine's hardware threads
};

/// Returns one endpoint for each rank, in order; each endpoint is for the thread of its rank. An endpoint counts as a rank that died
/// if it is destroyed and other ranks wait for it, then or later. The destructor waits until none of the endpoint's data is being
/// moved. Throws Error(usage) for a number of ranks or threads below 1, and for a time-out that is not positive.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks, const LocalOptions& options = {});

}  // namespace spillway::parallel
