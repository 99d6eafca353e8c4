// The end of a group of processes over a wire.
#pragma once
#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/wire.h"

namespace spillway::parallel {

/// What a wire's shared memory must have for each rank.
i64 process_memory_bytes();

/// This process's end of the group of all. See open_mpi_communicator for its end.
std::unique_ptr<Communicator> make_process_communicator(std::unique_ptr<Wire> wire, double timeout_s);

}  // namespace spillway::parallel
