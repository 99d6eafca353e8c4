// Communicators whose ranks are processes, without MPI. Processes on one node share memory and talk through Unix-domain sockets; processes
// on different nodes talk through TCP. A process that ends is noticed at once, one that hangs after the time-out. Sums have the same bits
// as with every communicator (ordered_sum.h).
#pragma once
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

struct SocketOptions {
  int rank = 0, size = 1;
  /// The rendezvous: unix:NAME (one node), tcp:HOST:PORT with the host of rank 0, or file:PATH that all nodes can read (meeting_place.h).
  std::string place;
  /// A secret, the same for all ranks, that tells this run from others at the same rendezvous. Ignored for a file, which carries a token of
  /// its own.
  std::string token = {};
  double timeout_s = 60;
  /// Time for all ranks to arrive; 0: the time-out.
  double meeting_s = 0;
  /// Time for the first answer of the process that listens at the rendezvous. After it another attempt is made, because the address may
  /// belong to another process by then.
  double first_answer_s = 10;
  /// If above 0, ranks r with equal r / ranks_per_node count as one node, so that the transport between nodes can be tested on one machine.
  /// 0: the real nodes.
  int ranks_per_node = 0;
};

/// Returns this process's endpoint in the group of all ranks, once all have arrived. The destructors of this endpoint and of all groups
/// split from it wait for those of the other processes. Throws Error(peer), which names the ranks that did not arrive in time, and
/// Error(usage) for ranks that do not belong together (meeting.h).
std::unique_ptr<Communicator> open_socket_communicator(const SocketOptions& options);

}  // namespace spillway::parallel
