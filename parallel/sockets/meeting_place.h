// A MeetingPlace is the address at which ranks that are processes find each other: rank 0 listens there, and the other ranks connect to it.
// The address is unix:NAME on one node, tcp:HOST:PORT, or file:PATH. The file must be readable on all nodes; rank 0 writes its addresses
// into it. Not thread-safe.
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
  /// Returns true if the address can be reached only on this node, so that all ranks are on it.
  bool is_near() const { return kind_ == Kind::near; }
  /// Returns true if rank 0 makes the token (secret) itself and writes it into the file, from which the others read it.
  bool tells_token() const { return kind_ == Kind::file; }

  /// Listens at this address. Called by rank 0. `token` is the secret that the others must know; if the address is a file, the token is
  /// written into it. Throws Error(usage), which gives the reason of a failure, such as a process that already listens there.
  std::vector<Descriptor> open(const std::string& token);
  void close();

  struct Reached {
    Descriptor socket;
    std::string token;  // the token (secret) from the file or, if there is no file, the one that was passed in
  };
  /// Makes one attempt to connect. Called by all ranks but 0. If nobody listens there yet, returns no socket and sets `why` to the reason.
  Reached reach(const std::string& token, Deadline deadline, std::string& why) const;

 private:
  enum class Kind { near, tcp, file };
  Reached reach_by_file(Deadline deadline, std::string& why) const;
  std::vector<Descriptor> listen_at_host() const;
  void tell(const std::string& lines);

  std::string text_;
  Kind kind_;
  std::string name_;  // name of the Unix socket, name of the host, or path of the file
  int port_ = 0;
  // identity (device and inode) of the file that this rank has written, until the file is removed
  std::optional<std::pair<dev_t, ino_t>> told_;
};

}  // namespace spillway::parallel
