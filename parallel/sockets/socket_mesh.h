// Connects every rank to every other rank, once each of them knows the addresses of all. Not thread-safe.
#pragma once
#include <vector>

#include "parallel/sockets/attendee.h"
#include "parallel/sockets/communicator_sockets.h"
#include "parallel/sockets/secret.h"
#include "parallel/sockets/shared_memory.h"

namespace spillway::parallel {

/// Holds the connection of this rank to another rank.
struct Neighbour {
  Descriptor socket;    // the connection's stream; empty for this rank itself
  SharedMemory memory;  // shared memory of a rank on this node, or of this rank
};

/// Returns this rank's connection to each rank, by rank. Other ranks connect to this one at `reception`. `secret` is the secret of the
/// rendezvous. Throws Error(peer), which names the ranks to which no connection could be made within the time-out.
std::vector<Neighbour> link_all(const SocketOptions& options, const Roster& roster, const Secret& secret, Reception reception,
                                i64 memory_bytes);

}  // namespace spillway::parallel
