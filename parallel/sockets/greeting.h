// The first words between processes that meet: a magic word, then a few lines of text. Whoever says anything else is a stranger, and
// whoever says nothing holds nobody up. Not thread-safe.
#pragma once
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "parallel/sockets/socket.h"

namespace spillway::parallel {

/// Lines without line breaks.
using Words = std::vector<std::string>;

bool send_words(const Descriptor& socket, const Words& words, Deadline deadline);
/// Empty, and `why` says so: the end of the connection, silence until the deadline, a stranger.
std::optional<Words> receive_words(const Descriptor& socket, Deadline deadline, std::string& why);

/// Takes in who connects.
class Reception {
 public:
  explicit Reception(std::vector<Descriptor> listeners) : listeners_(std::move(listeners)) {}

  struct Visitor {
    Descriptor socket;
    Words words;
  };
  /// The next who has said something; empty at the deadline.
  std::optional<Visitor> next(Deadline deadline);
  /// For an error's text: "; 10.0.0.7:4123 connected, which speaks something else"; "" when nobody did.
  std::string strangers() const;
  void note_stranger(const Descriptor& socket, const std::string& what);
  /// Nobody can connect any more.
  void close() { listeners_.clear(), coming_.clear(); }

 private:
  struct Coming {
    Descriptor socket;
    std::string bytes;
  };
  void accept_all();
  std::optional<Visitor> read(Coming& one, bool& over);

  std::vector<Descriptor> listeners_;
  std::list<Coming> coming_;
  std::string strangers_;
  int strangers_count_ = 0;
};

}  // namespace spillway::parallel
