// Provides stream sockets, within a node (Unix-domain with abstract names) and between nodes (TCP). No call blocks beyond its deadline.
// Sockets are closed on exec and when their owner is destroyed. The communicator over sockets (communicator_sockets.h) uses them. Plain
// values; no shared state.
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
/// Returns the milliseconds until the deadline, as a timeout for poll(), or 0 if the deadline has passed.
int milliseconds_until(Deadline deadline);
/// Returns true if this error number of a non-blocking call only means that the call should be repeated later.
bool will_pass(int error);

/// Makes the pauses between attempts to connect. The first pause is 5 ms; later ones grow up to half a second.
class Pauses {
 public:
  Deadline next();

 private:
  double pause_s_ = 0.005;
};

class SocketAddress {
 public:
  /// Returns an abstract name as an address. The name is valid in this node's network namespace and
  /// freed when its socket is closed. For an empty name the system chooses a free one.
  static SocketAddress abstract(const std::string& name);
  /// Resolves a numeric address or a host name. The result is empty if that fails.
  static std::vector<SocketAddress> resolve(const std::string& host, int port);
  static SocketAddress any(int family, int port);
  static SocketAddress of_this_end(const Descriptor& socket);
  static SocketAddress of_other_end(const Descriptor& socket);
  /// Returns the IPv4 addresses of all interfaces that are up, loopback last.
  static std::vector<SocketAddress> of_this_host(int port);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t bytes() const { return bytes_; }
  int family() const { return storage_.ss_family; }
  int port() const;
  SocketAddress with_port(int port) const;
  /// Returns the address as text: for example "10.0.0.1:29500" or "[::1]:29500", or the name of an abstract address.
  std::string text() const;
  /// Returns the host part, without the port.
  std::string host() const;

 private:
  sockaddr_storage storage_ = {};
  socklen_t bytes_ = 0;
};

/// try_listen() and try_connect() return an empty descriptor on failure, and set `error` to the system's error number or `why` to its text.
Descriptor try_listen(const SocketAddress& address, int& error);
Descriptor try_connect(const SocketAddress& address, Deadline deadline, std::string& why);
Descriptor accept_from(const Descriptor& listener);
/// Returns true if the process at the other end of a Unix-domain socket belongs to this user, according to the kernel (SO_PEERCRED); for
/// other kinds of sockets always returns true.
bool is_of_this_user(const Descriptor& socket);

/// send_all() and receive_all() transfer all `count` bytes. They return false if the deadline passes earlier, or if the other end is gone.
bool send_all(const Descriptor& socket, const void* bytes, size_t count, Deadline deadline);
bool receive_all(const Descriptor& socket, void* bytes, size_t count, Deadline deadline);
/// send_descriptor() passes a file descriptor to another process on this node, and receive_descriptor() receives one there.
bool send_descriptor(const Descriptor& socket, int fd, Deadline deadline);
Descriptor receive_descriptor(const Descriptor& socket, Deadline deadline);

}  // namespace spillway::parallel
