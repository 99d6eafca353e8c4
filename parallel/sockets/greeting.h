// Defines the first messages between processes at the rendezvous. A message is a magic word and a few lines of text. A process that
// sends anything else is treated as a stranger. A process that sends nothing does not delay the others. Not thread-safe.
#pragma once
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "parallel/sockets/socket.h"

namespace spillway::parallel {

/// Holds lines of text without line breaks.
using Words = std::vector<std::string>;

bool send_words(const Descriptor& socket, const Words& words, Deadline deadline);
constexpr u32 kMostGreetingBytes = 4096;  // largest greeting in bytes from a process that has not yet proved that it knows the secret
constexpr u32 kMostWordsBytes = 16u << 20;
/// Receives words. Returns nothing, and sets `why` to the reason, if the connection ends, if nothing comes before the deadline, if the
/// other process is a stranger, or if it sends more than `most` bytes.
std::optional<Words> receive_words(const Descriptor& socket, Deadline deadline, std::string& why, u32 most = kMostGreetingBytes);

/// Accepts connections and reads short greetings from them. Where the kernel tells which user a process belongs to, only processes of this
/// user are accepted. Each listening socket accepts at most `most_a_second` connections in a second; further ones wait in the socket's
/// system queue. With the default, even a full queue is empty a second later. Listening sockets take turns.
class Reception {
 public:
  static constexpr size_t kMostASecond = 4096;
  /// Listens at `listeners`. At most `most` connections may be open whose greeting is not complete, or as many as there are file
  /// descriptors for. If there are more, the oldest one that has said nothing yet is closed; if all have said something, one that has
  /// begun to prove itself is closed.
  Reception(std::vector<Descriptor> listeners, size_t most, size_t most_a_second = kMostASecond);

  struct Visitor {
    Descriptor socket;
    Words words;
    std::string memo;  // the text that was passed to come_again() or await(); "" for a new connection
  };
  /// Returns the next visitor whose words are complete, or nothing at the deadline.
  std::optional<Visitor> next(Deadline deadline);
  /// Waits for the next words of a visitor. next() then returns these words together with this memo.
  void come_again(Descriptor socket, std::string memo);
  /// Waits, however long it takes, for the answer on a connection that this process has opened. next() returns the answer with this memo.
  /// If the connection ended, next() returns the memo without words.
  void await(Descriptor socket, std::string memo);
  /// Returns a text about strangers for an error message, such as "; 10.0.0.7:4123
  /// connected but uses another protocol". The text is "" if there were none.
  std::string strangers() const;
  void note_stranger(const Descriptor& socket, const std::string& what);
  /// Closes all listening sockets and connections.
  void close() { doors_.clear(), coming_.clear(); }

 private:
  struct Door {
    Descriptor listener;
    size_t let_in = 0;  // number of connections accepted in the current second
  };
  struct Coming {
    Descriptor socket;
    std::string memo;
    Deadline until;  // time limit for the connection's words; kAwaited for a connection that was passed to await()
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
