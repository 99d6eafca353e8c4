// Ranks that are processes, without MPI: those of one node share memory and talk through Unix-domain sockets, those of different nodes talk
// through TCP. A process that ends is known at once, one that hangs after the time-out. The sums have the bits of every communicator
// (ordered_sum.h).
#pragma once
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

struct SocketOptions {
  int rank = 0, size = 1;
  /// Where they meet: unix:NAME (one node), tcp:HOST:PORT with the host of rank 0, or file:PATH that all nodes see (meeting_place.h).
  std::string place;
  /// Tells this run from others that meet there; the same for all. A file makes its own.
  std::string token = {};
  double timeout_s = 60;
  /// For all to come together; 0: the time-out.
  double meeting_s = 0;
  /// For the first word of who listens at the place: then another try is made, for the place may have become another one's.
  double first_answer_s = 10;
  /// Ranks r with equal r / this count as a node: to try the way between nodes on one machine. 0: nodes as they are.
  int ranks_per_node = 0;
};

/// This process's end of the group of all, when all have come. Its destruction, with that of all groups split from it, waits for the
/// others'. Error(peer) that names who did not come within the time-out, Error(usage) for what cannot go together (meeting.h).
std::unique_ptr<Communicator> open_socket_communicator(const SocketOptions& options);

}  // namespace spillway::parallel
