// The rendezvous of ranks that are processes. Rank 0 waits at a known place and each rank sends it its address data. When all have arrived,
// rank 0 sends each of them the data of all, and every rank connects with every other. Errors name strangers, other builds, other runs and
// ranks that did not arrive. Not thread-safe.
#pragma once
#include <vector>

#include "parallel/sockets/socket_mesh.h"

namespace spillway::parallel {

/// Returns the connections by rank. `memory_bytes`: shared memory that each rank provides to the ranks of its node. Throws Error(peer) on
/// all ranks that arrived, naming those that did not arrive in time. Throws Error(usage) for an impossible place, two processes with the
/// same rank, or different builds.
std::vector<Neighbour> meet(const SocketOptions& options, i64 memory_bytes);

}  // namespace spillway::parallel
