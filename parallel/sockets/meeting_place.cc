#include "parallel/sockets/meeting_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "base/error.h"

namespace spillway::parallel {
namespace {

constexpr double kOneAddress_s = 2;  // seconds for an attempt at one of several addresses of a host, since some of them may be unreachable
constexpr size_t kMostFileBytes = 64 << 10;

[[noreturn]] void wrong(const std::string& text) {
  throw Error(ErrorCode::usage,
              fmt::format("[rendezvous] expected tcp:HOST:PORT with a port from 1 to 65535, or file:PATH, got \"{}\"", text));
}

[[noreturn]] void cannot_open(const std::string& text, const std::string& why) {
  throw Error(ErrorCode::usage, fmt::format("[rendezvous] expected rank 0 to open {}, got \"{}\": another program or run may use it; "
                                            "choose another --rendezvous (or MASTER_PORT)",
                                            text, why));
}

bool write_all(const Descriptor& file, std::string_view rest) {
  while (!rest.empty()) {
    const ssize_t written = write(file.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return false;
    rest.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Returns the text of the file. If the file does not belong to this user, or if others may access it, returns an empty text and sets `why`.
// The checks and the read use one open descriptor, so they refer to the same file even if its name is given to another file meanwhile.
std::string read_own_file(const std::string& path, std::string& why) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!file || fstat(file.get(), &about) != 0) {
    why = errno == ENOENT ? "the file does not exist" : std::string("the file cannot be opened: ") + std::strerror(errno);
    return "";
  }
  if (!S_ISREG(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077) != 0) {
    why = "it is not a regular file, belongs to another user, or is readable by other users";
    return "";
  }
  std::string text(kMostFileBytes, '\0');
  const ssize_t got = read(file.get(), text.data(), text.size());
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (text.empty()) why = "the file is empty";
  return text;
}

}  // namespace

MeetingPlace::MeetingPlace(const std::string& text) : text_(text) {
  const std::string rest = text.substr(std::min(text.find(':'), text.size() - 1) + 1);
  if (rest.empty()) wrong(text);
  name_ = rest;
  if (text.starts_with("unix:")) {
    kind_ = Kind::near;
  } else if (text.starts_with("file:")) {
    kind_ = Kind::file;
  } else if (text.starts_with("tcp:") && rest.rfind(':') != std::string::npos) {
    kind_ = Kind::tcp;
    name_ = rest.substr(0, rest.rfind(':'));
    if (name_.starts_with("[") && name_.ends_with("]")) name_ = name_.substr(1, name_.size() - 2);
    const std::string port = rest.substr(rest.rfind(':') + 1);
    const auto read = std::from_chars(port.data(), port.data() + port.size(), port_);
    if (read.ec != std::errc() || read.ptr != port.data() + port.size() || port_ < 1 || port_ > 65535 || name_.empty()) wrong(text);
  } else {
    wrong(text);
  }
}

MeetingPlace::~MeetingPlace() { close(); }

// Listens at the addresses of the host name. If none of them can be used on this machine, listens at all addresses of the machine.
std::vector<Descriptor> MeetingPlace::listen_at_host() const {
  const std::vector<SocketAddress> addresses = SocketAddress::resolve(name_, port_);
  if (addresses.empty()) cannot_open(text_, "no such host");
  std::vector<Descriptor> listeners;
  int error = 0;
  const auto listen = [&](const SocketAddress& address) {
    Descriptor one = try_listen(address, error);
    if (!one && error == EADDRINUSE) cannot_open(text_, std::strerror(error));
    if (one) listeners.push_back(std::move(one));
  };
  for (const SocketAddress& address : addresses) listen(address);
  if (listeners.empty()) listen(SocketAddress::any(addresses.front().family(), port_));
  if (listeners.empty()) cannot_open(text_, std::strerror(error));
  return listeners;
}

std::vector<Descriptor> MeetingPlace::open(const std::string& token) {
  if (kind_ == Kind::tcp) return listen_at_host();
  std::vector<Descriptor> listeners;
  int error = 0;
  listeners.push_back(try_listen(kind_ == Kind::near ? SocketAddress::abstract(name_) : SocketAddress::any(AF_INET, 0), error));
  if (!listeners.front()) cannot_open(text_, std::strerror(error));
  if (kind_ == Kind::near) return listeners;
  std::string lines = token + "\n";
  for (const SocketAddress& address : SocketAddress::of_this_host(SocketAddress::of_this_end(listeners.front()).port()))
    lines += fmt::format("{} {}\n", address.host(), address.port());
  tell(lines);
  return listeners;
}

// Writes the file atomically; only its owner can read it.
void MeetingPlace::tell(const std::string& lines) {
  const std::string beside = fmt::format("{}.{}", name_, getpid());
  unlink(beside.c_str());  // removes a file that a dead process with the same process number has left
  const Descriptor file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  struct stat about {};
  if (file && write_all(file, lines) && fsync(file.get()) == 0 && fstat(file.get(), &about) == 0 &&
      rename(beside.c_str(), name_.c_str()) == 0) {
    told_ = {about.st_dev, about.st_ino};
    return;
  }
  const int error = errno;
  if (file) unlink(beside.c_str());
  cannot_open(text_, std::strerror(error));
}

// Removes the file, unless another run has meanwhile replaced it by its own file.
void MeetingPlace::close() {
  struct stat about {};
  const auto told = std::exchange(told_, std::nullopt);
  if (told && lstat(name_.c_str(), &about) == 0 && *told == std::pair(about.st_dev, about.st_ino)) unlink(name_.c_str());
}

MeetingPlace::Reached MeetingPlace::reach(const std::string& token, Deadline deadline, std::string& why) const {
  if (kind_ == Kind::file) return reach_by_file(deadline, why);
  if (kind_ == Kind::near) return {try_connect(SocketAddress::abstract(name_), deadline, why), token};
  why = "no such host";
  for (const SocketAddress& address : SocketAddress::resolve(name_, port_)) {
    if (Descriptor socket = try_connect(address, std::min(deadline, deadline_in(kOneAddress_s)), why)) return {std::move(socket), token};
  }
  return {};
}

MeetingPlace::Reached MeetingPlace::reach_by_file(Deadline deadline, std::string& why) const {
  std::istringstream file(read_own_file(name_, why));
  std::string token, host;
  int port = 0;
  if (!std::getline(file, token)) return {};
  why = "the file contains no address";
  while (file >> host >> port) {
    for (const SocketAddress& address : SocketAddress::resolve(host, port)) {
      const Deadline soon = std::min(deadline, deadline_in(kOneAddress_s));
      if (Descriptor socket = try_connect(address, soon, why)) return {std::move(socket), token};
      why = address.text() + " (an address in the file): " + why;
    }
  }
  return {};
}

}  // namespace spillway::parallel
