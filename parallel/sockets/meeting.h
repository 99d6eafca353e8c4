// How ranks that are processes come together: rank 0 waits at a place, each tells it who and where it is, and when all have come each is
// told of all; then everyone is linked with everyone. Strangers, other builds, other runs and who does not come are named. Not thread-safe.
#pragma once
#include <vector>

#include "parallel/sockets/socket_mesh.h"

namespace spillway::parallel {

/// By rank. `memory_bytes`: what ranks of a node share, each. Error(peer) naming who did not come within the time-out, on all who came;
/// Error(usage) for a place that cannot be, two of one rank, and unequal programs.
std::vector<Neighbour> meet(const SocketOptions& options, i64 memory_bytes);

}  // namespace spillway::parallel
