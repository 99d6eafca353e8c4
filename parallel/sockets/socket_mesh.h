// Connects every rank with every other, once each knows the addresses of all. Not thread-safe.
#pragma once
#include <vector>

#include "parallel/sockets/attendee.h"
#include "parallel/sockets/communicator_sockets.h"
#include "parallel/sockets/secret.h"
#include "parallel/sockets/shared_memory.h"

namespace spillway::parallel {

/// The connection of this rank to another one.
struct Neighbour {
  Descriptor socket;    // the connection's stream; empty for this rank itself
  SharedMemory memory;  // shared memory of a rank on this node, or of this rank
};

/// Returns the connections by rank. `reception` is where other ranks connect to this one, and `secret` is that of the rendezvous. Throws
/// Error(peer), which names the ranks that could not be connected within the time-out.
std::vector<Neighbour> link_all(const SocketOptions& options, const Roster& roster, const Secret& secret, Reception reception,
                                i64 memory_bytes);

}  // namespace spillway::parallel
