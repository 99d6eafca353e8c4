// Ranks that are threads of one process: several ranks on one GPU-less machine without MPI, and the tests of everything that talks. Data
// is read where it lies, in the peers' buffers; nothing is staged. The threads that move it serve all ranks (movers.h).
#pragma once
#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

struct LocalOptions {
  double timeout_s = 60;
  int threads = 1;  // that move data, for each rank; in all never more than the machine runs at once
};

/// One end for each rank, in order; each goes to its own thread. An end that is destroyed while others wait for it, or before they do,
/// is a rank that died; its destructor waits for what of its is being moved. Error(usage) for no ranks, no threads or no time.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks, const LocalOptions& options = {});

}  // namespace spillway::parallel
