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
constexpr u32 kMostGreetingBytes = 4096;  // of who has not yet proved who it is
constexpr u32 kMostWordsBytes = 16u << 20;
/// Empty, and `why` says so: the end of the connection, silence until the deadline, a stranger, more bytes than `most`.
std::optional<Words> receive_words(const Descriptor& socket, Deadline deadline, std::string& why, u32 most = kMostGreetingBytes);

/// Takes in who connects: this user's processes alone where the kernel knows whose they are, so many at a time, and short greetings. Crowds
/// wait outside, in the system's queue at each door: no more than `most_a_second` are let in there, and with the usual number a queue that
/// is full is empty a second later. Doors take turns.
class Reception {
 public:
  static constexpr size_t kMostASecond = 4096;
  /// `most` may be there at a time without having said all, or as many as there are descriptors for: who has said nothing yet gives way
  /// before who has begun to prove who it is, the oldest of them first.
  Reception(std::vector<Descriptor> listeners, size_t most, size_t most_a_second = kMostASecond);

  struct Visitor {
    Descriptor socket;
    Words words;
    std::string memo;  // of come_again() or await()
  };
  /// The next who has said something; empty at the deadline.
  std::optional<Visitor> next(Deadline deadline);
  /// Its next words come with this memo.
  void come_again(Descriptor socket, std::string memo);
  /// Where this process connected itself: an answer comes with this memo, without words when there will be none. However long it takes.
  void await(Descriptor socket, std::string memo);
  /// For an error's text: "; 10.0.0.7:4123 connected, which speaks something else"; "" when nobody did.
  std::string strangers() const;
  void note_stranger(const Descriptor& socket, const std::string& what);
  /// Nobody can connect any more.
  void close() { doors_.clear(), coming_.clear(); }

 private:
  struct Door {
    Descriptor listener;
    size_t let_in = 0;  // in this second
  };
  struct Coming {
    Descriptor socket;
    std::string memo;
    Deadline until;  // kAwaited: of await()
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
