// Carries out the rendezvous of ranks that are processes. Rank 0 waits at a known address, and each other rank sends rank 0 its
// own addresses. When all have arrived, rank 0 sends the addresses of all to each of them, and every rank connects to every
// other. Errors tell of strangers, other builds, other runs and ranks that did not arrive. Not thread-safe.
#pragma once
#include <vector>

#include "parallel/sockets/socket_mesh.h"

namespace spillway::parallel {

/// Returns this rank's connection to each rank, by rank. Each rank shares `memory_bytes` of memory with the ranks of its node.
/// If ranks did not arrive in time, throws Error(peer), which names them, on all ranks that did arrive. Throws Error(usage) for
/// an address that cannot be used, for two processes with the same rank, and for different builds.
std::vector<Neighbour> meet(const SocketOptions& options, i64 memory_bytes);

}  // namespace spillway::parallel
