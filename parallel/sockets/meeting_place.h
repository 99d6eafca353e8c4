// The address at which ranks that are processes find each other: rank 0 listens there and the others connect. It is unix:NAME on one node,
// tcp:HOST:PORT, or file:PATH, a file that all nodes can read and into which rank 0 writes its addresses. Not thread-safe.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/sockets/socket.h"

namespace spillway::parallel {

class MeetingPlace {
 public:
  /// Parses the address. Throws Error(usage), which lists the valid forms.
  explicit MeetingPlace(const std::string& text);
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;
  ~MeetingPlace();

  const std::string& text() const { return text_; }
  /// Returns true if all ranks are on this node.
  bool is_near() const { return kind_ == Kind::near; }
  /// Returns true if rank 0 invents the token and the others read it from the file.
  bool tells_token() const { return kind_ == Kind::file; }

  /// Opens the place; called by rank 0. `token` is the secret that the others must know; a file contains it. Throws Error(usage), which
  /// names what already listens there.
  std::vector<Descriptor> open(const std::string& token);
  void close();

  struct Reached {
    Descriptor socket;
    std::string token;  // read from the file, otherwise as passed in
  };
  /// Makes one attempt to connect; called by the other ranks. If nobody listens yet, returns no socket and sets `why`.
  Reached reach(const std::string& token, Deadline deadline, std::string& why) const;

 private:
  enum class Kind { near, tcp, file };
  Reached reach_by_file(Deadline deadline, std::string& why) const;
  std::vector<Descriptor> listen_at_host() const;
  void tell(const std::string& lines);

  std::string text_;
  Kind kind_;
  std::string name_;  // name of the socket, the host or the file
  int port_ = 0;
  std::optional<std::pair<dev_t, ino_t>> told_;  // identifies the file that this rank wrote, as long as it exists
};

}  // namespace spillway::parallel
