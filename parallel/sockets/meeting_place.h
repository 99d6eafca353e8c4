// Where ranks that are processes find each other: rank 0 is there, the others come. unix:NAME on one node, tcp:HOST:PORT, or file:PATH,
// which all nodes see and into which rank 0 writes where it listens. Not thread-safe.
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
  /// Error(usage) with the forms there are.
  explicit MeetingPlace(const std::string& text);
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;
  ~MeetingPlace();

  const std::string& text() const { return text_; }
  /// Nobody comes from another node.
  bool is_near() const { return kind_ == Kind::near; }
  /// Rank 0 invents the token, and the others read it.
  bool tells_token() const { return kind_ == Kind::file; }

  /// Rank 0. `token` is what the others will have to say; a file tells it. Error(usage) that names what listens there already.
  std::vector<Descriptor> open(const std::string& token);
  void close();

  struct Reached {
    Descriptor socket;
    std::string token;  // of the file; else as it was given
  };
  /// The others: one try; no socket, and `why` says so, when nobody is there yet.
  Reached reach(const std::string& token, Deadline deadline, std::string& why) const;

 private:
  enum class Kind { near, tcp, file };
  Reached reach_by_file(Deadline deadline, std::string& why) const;
  std::vector<Descriptor> listen_at_host() const;
  void tell(const std::string& lines);

  std::string text_;
  Kind kind_;
  std::string name_;  // of the socket, the host, the file
  int port_ = 0;
  std::optional<std::pair<dev_t, ino_t>> told_;  // the file that is there, as long as it is
};

}  // namespace spillway::parallel
