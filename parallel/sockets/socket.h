// Stream sockets of this node (Unix-domain, abstract names) and between nodes (TCP), never blocking beyond a deadline, closed on exec and
// by their owner. For the wire over sockets (communicator_sockets.h). Values; nothing shared.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/types.h"

namespace spillway::parallel {

using Deadline = std::chrono::steady_clock::time_point;
Deadline deadline_in(double seconds);
/// For poll(): 0 when it has passed.
int milliseconds_until(Deadline deadline);
/// Of a call on a socket that does not block: try again later.
bool will_pass(int error);

/// When to try again: after 5 ms, then ever later, up to half a second.
class Pauses {
 public:
  Deadline next();

 private:
  double pause_s_ = 0.005;
};

class SocketAddress {
 public:
  /// A name of this node's, more exactly of its network namespace; freed with its socket. Empty: the system finds one that is free.
  static SocketAddress abstract(const std::string& name);
  /// Numbers or a name; empty when it cannot be resolved.
  static std::vector<SocketAddress> resolve(const std::string& host, int port);
  static SocketAddress any(int family, int port);
  static SocketAddress of_this_end(const Descriptor& socket);
  static SocketAddress of_other_end(const Descriptor& socket);
  /// Of all interfaces that are up, loopback last.
  static std::vector<SocketAddress> of_this_host(int port);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t bytes() const { return bytes_; }
  int family() const { return storage_.ss_family; }
  int port() const;
  SocketAddress with_port(int port) const;
  /// "10.0.0.1:29500", "[::1]:29500"; the name of an abstract one.
  std::string text() const;
  /// Without the port.
  std::string host() const;

 private:
  sockaddr_storage storage_ = {};
  socklen_t bytes_ = 0;
};

/// Empty when that cannot be; then `error` is the system's, `why` its words.
Descriptor try_listen(const SocketAddress& address, int& error);
Descriptor try_connect(const SocketAddress& address, Deadline deadline, std::string& why);
Descriptor accept_from(const Descriptor& listener);
/// Of a Unix socket whether this user's process is at the other end, as the kernel knows (SO_PEERCRED); true of any other.
bool is_of_this_user(const Descriptor& socket);

/// All of it; false at the deadline or when the other end is gone.
bool send_all(const Descriptor& socket, const void* bytes, size_t count, Deadline deadline);
bool receive_all(const Descriptor& socket, void* bytes, size_t count, Deadline deadline);
/// A descriptor to and from another process of this node.
bool send_descriptor(const Descriptor& socket, int fd, Deadline deadline);
Descriptor receive_descriptor(const Descriptor& socket, Deadline deadline);

}  // namespace spillway::parallel
