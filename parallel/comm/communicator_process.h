// A communicator whose ranks are processes connected by a wire (wire.h).
#pragma once
#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/wire.h"

namespace spillway::parallel {

/// Returns the bytes of shared memory that a wire must provide for each rank.
i64 process_memory_bytes();

/// Returns this process's endpoint in the group of all ranks of the wire. Its destruction is described at open_mpi_communicator().
std::unique_ptr<Communicator> make_process_communicator(std::unique_ptr<Wire> wire, double timeout_s);

}  // namespace spillway::parallel
