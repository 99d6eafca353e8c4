// The links of every rank with every other, once each knows where all are. Not thread-safe.
#pragma once
#include <vector>

#include "parallel/sockets/attendee.h"
#include "parallel/sockets/communicator_sockets.h"
#include "parallel/sockets/secret.h"
#include "parallel/sockets/shared_memory.h"

namespace spillway::parallel {

/// What this rank has of another.
struct Neighbour {
  Descriptor socket;    // a stream; none to itself
  SharedMemory memory;  // of ranks of this node, its own too
};

/// By rank. `reception` is where this rank's peers connect. Error(peer) naming those who are not there within the time-out.
/// `secret`: of those who met.
std::vector<Neighbour> link_all(const SocketOptions& options, const Roster& roster, const Secret& secret, Reception reception,
                                i64 memory_bytes);

}  // namespace spillway::parallel
