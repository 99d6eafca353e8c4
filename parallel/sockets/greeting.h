// The first messages between processes at the rendezvous: a magic word and a few lines of text. A process that sends anything else is
// treated as a stranger, and one that sends nothing delays nobody. Not thread-safe.
#pragma once
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "parallel/sockets/socket.h"

namespace spillway::parallel {

/// Lines of text without line breaks.
using Words = std::vector<std::string>;

bool send_words(const Descriptor& socket, const Words& words, Deadline deadline);
constexpr u32 kMostGreetingBytes = 4096;  // limit for a process that has not proved yet that it knows the secret
constexpr u32 kMostWordsBytes = 16u << 20;
/// Receives words. Returns nothing, and sets `why`, if the connection ends, nothing comes before the deadline, the sender is a stranger, or
/// it sends more than `most` bytes.
std::optional<Words> receive_words(const Descriptor& socket, Deadline deadline, std::string& why, u32 most = kMostGreetingBytes);

/// Accepts connections and reads short greetings from them. Where the kernel tells whose process connects, only this user's are accepted.
/// Crowds wait in the system's queue of each listening socket ("door"): each accepts at most `most_a_second` connections, and with the
/// default a full queue is empty a second later. Doors take turns.
class Reception {
 public:
  static constexpr size_t kMostASecond = 4096;
  /// At most `most` connections, or as many as there are descriptors for, may be open without a complete greeting. If there are more, the
  /// oldest is closed that has said nothing yet; only if there is none, one that has begun to prove itself.
  Reception(std::vector<Descriptor> listeners, size_t most, size_t most_a_second = kMostASecond);

  struct Visitor {
    Descriptor socket;
    Words words;
    std::string memo;  // the memo passed to come_again() or await()
  };
  /// Returns the next visitor with complete words; empty at the deadline.
  std::optional<Visitor> next(Deadline deadline);
  /// Waits for the visitor's next words, which next() returns with this memo.
  void come_again(Descriptor socket, std::string memo);
  /// Waits for an answer on a connection that this process opened, for however long it takes. next() returns it with this memo, or without
  /// words if the connection ended.
  void await(Descriptor socket, std::string memo);
  /// Returns text for an error message, such as "; 10.0.0.7:4123 connected but uses another protocol"; "" if there were no strangers.
  std::string strangers() const;
  void note_stranger(const Descriptor& socket, const std::string& what);
  /// Closes all listening sockets and connections.
  void close() { doors_.clear(), coming_.clear(); }

 private:
  struct Door {
    Descriptor listener;
    size_t let_in = 0;  // connections accepted in the current second
  };
  struct Coming {
    Descriptor socket;
    std::string memo;
    Deadline until;  // time limit; kAwaited for a connection from await()
    std::string bytes = {};
  };
  static constexpr Deadline kAwaited = Deadline::max();

  bool give_way();
  void take_in(Descriptor socket, std::string memo);
  void accept_all();
  void accept_some(Door& door);
  void drop_late();
  std::optional<Visitor> read(Coming& one, bool& over);
  std::optional<Visitor> read_all();
  void wait(Deadline deadline) const;

  std::vector<Door> doors_;
  size_t most_, most_a_second_;
  Deadline next_second_{};
  std::list<Coming> coming_;
  std::string strangers_;
  int strangers_count_ = 0;
};

}  // namespace spillway::parallel
