// Opens communicators whose ranks are processes started by MPI. The code that needs MPI is a plug-in, libspillway_mpi.so, which is opened
// on demand, so the program starts where MPI is not installed. Within a node, data passes through shared memory; between nodes it is sent
// directly from buffer to buffer. Sums are bitwise those of every other communicator (ordered_sum.h). One thread makes all MPI calls.
#pragma once
#include <memory>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

struct MpiOptions {
  double timeout_s = 60;
  /// If above 0, ranks r with equal r / ranks_per_node count as one node, provided that they really are on the same
  /// machine. In this way one machine can test the transport between nodes. If 0, the nodes are the real machines.
  int ranks_per_node = 0;
};

/// Returns this process's endpoint in the group of all processes that mpirun or srun started. All processes must call this function. If
/// they call it more than once, they must do so in the same order. The destructors of this endpoint, and of the endpoints in all groups
/// split from it, wait for those of the other processes. Throws Error(usage), which names what was tried, if the plug-in or Open MPI's
/// libraries are missing. A failure inside MPI ends the process, as is usual with MPI.
std::unique_ptr<Communicator> open_mpi_communicator(const MpiOptions& options = {});

}  // namespace spillway::parallel
