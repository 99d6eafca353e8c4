#include "parallel/sockets/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace spillway::parallel {
namespace {

constexpr int kBacklog = 4096;
constexpr int kKinds = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

bool wait_for(int fd, short events, Deadline deadline) {
  pollfd one{fd, events, 0};
  for (;;) {
    const int ready = poll(&one, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 && milliseconds_until(deadline) == 0) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

void set_for_speed(int fd, int family) {
  const int on = 1;
  if (family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Repeats `once` until all bytes are transferred. `once` returns how many bytes it has moved, as recv and send do.
template <class Once>
bool move_all(const Descriptor& socket, short events, size_t count, Deadline deadline, Once once) {
  for (size_t done = 0; done < count;) {
    const ssize_t moved = once(done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved == 0 || !will_pass(errno) || !wait_for(socket.get(), events, deadline)) {
      return false;
    }
  }
  return true;
}

// A Parcel is a message of one byte that carries a file descriptor.
struct Parcel {
  char byte = 'd';
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  Parcel() {
    message.msg_iov = &piece, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
  }
};

}  // namespace

bool will_pass(int error) { return error == EAGAIN || error == EINTR; }

Deadline deadline_in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e8)));
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<i64>(left, 0, 1'000'000'000));
}

Deadline Pauses::next() {
  constexpr double kLongest_s = 0.5;
  return deadline_in(std::exchange(pause_s_, std::min(pause_s_ * 1.5, kLongest_s)));
}

SocketAddress SocketAddress::abstract(const std::string& name) {
  SocketAddress made;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  std::memcpy(&made.storage_, &address, sizeof address);
  made.bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + (bytes > 0 ? 1 + bytes : 0));
  return made;
}

std::vector<SocketAddress> SocketAddress::resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<SocketAddress> all;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return all;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress& made = all.emplace_back();
    std::memcpy(&made.storage_, one->ai_addr, one->ai_addrlen);
    made.bytes_ = one->ai_addrlen;
  }
  freeaddrinfo(found);
  return all;
}

SocketAddress SocketAddress::any(int family, int port) {
  SocketAddress made;
  made.storage_.ss_family = static_cast<sa_family_t>(family);
  made.bytes_ = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return made.with_port(port);
}

SocketAddress SocketAddress::of_this_end(const Descriptor& socket) {
  SocketAddress made;
  made.bytes_ = sizeof made.storage_;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&made.storage_), &made.bytes_);
  return made;
}

SocketAddress SocketAddress::of_other_end(const Descriptor& socket) {
  SocketAddress made;
  made.bytes_ = sizeof made.storage_;
  getpeername(socket.get(), reinterpret_cast<sockaddr*>(&made.storage_), &made.bytes_);
  return made;
}

std::vector<SocketAddress> SocketAddress::of_this_host(int port) {
  ifaddrs* all = nullptr;
  std::vector<SocketAddress> near, far;
  if (getifaddrs(&all) != 0) return near;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
    SocketAddress& made = (one->ifa_flags & IFF_LOOPBACK ? near : far).emplace_back();
    std::memcpy(&made.storage_, one->ifa_addr, sizeof(sockaddr_in));
    made.bytes_ = sizeof(sockaddr_in);
    made = made.with_port(port);
  }
  freeifaddrs(all);
  far.insert(far.end(), near.begin(), near.end());
  return far;
}

int SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return 0;
}

SocketAddress SocketAddress::with_port(int port) const {
  SocketAddress made = *this;
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&made.storage_)->sin_port = htons(static_cast<u16>(port));
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&made.storage_)->sin6_port = htons(static_cast<u16>(port));
  return made;
}

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = {};
  if (getnameinfo(get(), bytes_, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text;
}

std::string SocketAddress::text() const {
  if (family() == AF_UNIX) {
    const auto prefix = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1);
    if (bytes_ <= prefix) return "";
    return {reinterpret_cast<const sockaddr_un*>(&storage_)->sun_path + 1, bytes_ - prefix};
  }
  return (family() == AF_INET6 ? "[" + host() + "]" : host()) + ":" + std::to_string(port());
}

Descriptor try_listen(const SocketAddress& address, int& error) {
  Descriptor made(socket(address.family(), kKinds, 0));
  const int on = 1;
  if (made && address.family() != AF_UNIX) setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (made && bind(made.get(), address.get(), address.bytes()) == 0 && listen(made.get(), kBacklog) == 0) return made;
  error = errno;
  return {};
}

Descriptor try_connect(const SocketAddress& address, Deadline deadline, std::string& why) {
  Descriptor made(socket(address.family(), kKinds, 0));
  int error = 0;
  socklen_t bytes = sizeof error;
  if (!made) {
    error = errno;
  } else if (connect(made.get(), address.get(), address.bytes()) != 0) {
    error = errno;
    if (error == EINPROGRESS && wait_for(made.get(), POLLOUT, deadline)) {
      getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    } else if (error == EINPROGRESS) {
      error = ETIMEDOUT;
    }
  }
  if (error == 0) {
    set_for_speed(made.get(), address.family());
    return made;
  }
  // On a Unix-domain socket, connect() fails with EAGAIN if the queue of the listening socket is full.
  why = error == EAGAIN ? "the process that listens there accepts no connections, or too many connections are waiting already"
                        : std::strerror(error);
  return {};
}

Descriptor accept_from(const Descriptor& listener) {
  Descriptor made(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (made) set_for_speed(made.get(), SocketAddress::of_this_end(listener).family());
  return made;
}

bool is_of_this_user(const Descriptor& socket) {
  if (SocketAddress::of_this_end(socket).family() != AF_UNIX) return true;
  ucred other{};
  socklen_t bytes = sizeof other;
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.uid == geteuid();
}

bool send_all(const Descriptor& socket, const void* bytes, size_t count, Deadline deadline) {
  const auto* from = static_cast<const char*>(bytes);
  return move_all(socket, POLLOUT, count, deadline,
                  [&](size_t done) { return send(socket.get(), from + done, count - done, MSG_NOSIGNAL); });
}

bool receive_all(const Descriptor& socket, void* bytes, size_t count, Deadline deadline) {
  auto* to = static_cast<char*>(bytes);
  return move_all(socket, POLLIN, count, deadline, [&](size_t done) { return recv(socket.get(), to + done, count - done, 0); });
}

bool send_descriptor(const Descriptor& socket, int fd, Deadline deadline) {
  Parcel parcel;
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return move_all(socket, POLLOUT, 1, deadline, [&](size_t) { return sendmsg(socket.get(), &parcel.message, MSG_NOSIGNAL); });
}

Descriptor receive_descriptor(const Descriptor& socket, Deadline deadline) {
  Parcel parcel;
  if (!move_all(socket, POLLIN, 1, deadline, [&](size_t) { return recvmsg(socket.get(), &parcel.message, MSG_CMSG_CLOEXEC); })) return {};
  const cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return Descriptor(fd);
}

}  // namespace spillway::parallel
