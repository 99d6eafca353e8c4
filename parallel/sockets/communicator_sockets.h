// Makes communicators whose ranks are processes, without MPI. Processes on the same node share memory and talk through Unix-domain sockets;
// processes on different nodes talk through TCP. If a process ends, the others notice it at once; if it hangs, they notice it after the
// time-out. Sums are bitwise those of every other communicator (ordered_sum.h).
#pragma once
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

struct SocketOptions {
  int rank = 0, size = 1;
  /// Gives the address of the rendezvous: unix:NAME (one node only), tcp:HOST:PORT with the host
  /// of rank 0, or file:PATH of a file that all nodes can read (meeting_place.h).
  std::string place;
  /// Gives a secret that all ranks of this run know, which tells them from other runs at the same rendezvous. The secret is ignored if the
  /// rendezvous is a file, because the file contains the token.
  std::string token = {};
  double timeout_s = 60;
  /// The seconds in which all ranks must arrive. 0 means as long as the time-out.
  double meeting_s = 0;
  /// The seconds in which the process that listens at the rendezvous must give its first answer. After that, this rank connects again,
  /// because the address may belong to another process by then.
  double first_answer_s = 10;
  /// If above 0, ranks r with equal r / ranks_per_node count as one node, so that one machine can
  /// test the transport between nodes. If 0, the nodes are the real machines.
  int ranks_per_node = 0;
};

/// Waits until all ranks have arrived and returns this process's endpoint in the group of all ranks. The destructors of this endpoint, and
/// of the endpoints in all groups split from it, wait for the destructors in the other processes. Throws Error(peer), which names the ranks
/// that did not arrive in time, and Error(usage) for ranks that do not belong together (meeting.h).
std::unique_ptr<Communicator> open_socket_communicator(const SocketOptions& options);

}  // namespace spillway::parallel
