// Makes a communicator whose ranks are processes that are connected by a Wire, the transport of bytes between processes (wire.h).
#pragma once
#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/wire.h"

namespace spillway::parallel {

/// Returns the bytes of shared memory that each rank takes from the Wire.
i64 process_memory_bytes();

/// Returns this process's endpoint in the group of all ranks of the wire. The comment
/// on open_mpi_communicator() says what its destructor waits for.
std::unique_ptr<Communicator> make_process_communicator(std::unique_ptr<Wire> wire, double timeout_s);

}  // namespace spillway::parallel
