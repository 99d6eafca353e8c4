// Ranks that are processes started by MPI. What needs MPI is a plug-in, libspillway_mpi.so, opened when asked for: the program starts where
// there is no MPI. Within a node data passes through shared memory, between nodes from place to place; the sums have the bits of every
// communicator (ordered_sum.h). MPI is called by one thread.
#pragma once
#include <memory>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

struct MpiOptions {
  double timeout_s = 60;
  /// Ranks r with equal r / this count as a node, where they are one: to try the way between nodes on one machine. 0: nodes as they are.
  int ranks_per_node = 0;
};

/// This process's end of the group of all processes that mpirun or srun started; all of them call this, in the same order if often. Its
/// destruction, with that of all groups split from it, waits for the others'. Error(usage) that names what was tried when the plug-in or
/// Open MPI's libraries are missing; what MPI itself fails at ends the process, as MPI does.
std::unique_ptr<Communicator> open_mpi_communicator(const MpiOptions& options = {});

}  // namespace spillway::parallel
