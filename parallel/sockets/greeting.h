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

/// Takes in who connects: this user's processes alone where the kernel knows whose they are, so many at a time, and short greetings.
class Reception {
 public:
  /// `most` may be there at a time without having said all: the oldest of them gives way.
  Reception(std::vector<Descriptor> listeners, size_t most) : listeners_(std::move(listeners)), most_(most) {}

  struct Visitor {
    Descriptor socket;
    Words words;
    std::string memo;  // of come_again()
  };
  /// The next who has said something; empty at the deadline.
  std::optional<Visitor> next(Deadline deadline);
  /// Its next words come with this memo.
  void come_again(Descriptor socket, std::string memo);
  /// For an error's text: "; 10.0.0.7:4123 connected, which speaks something else"; "" when nobody did.
  std::string strangers() const;
  void note_stranger(const Descriptor& socket, const std::string& what);
  /// Nobody can connect any more.
  void close() { listeners_.clear(), coming_.clear(); }

 private:
  struct Coming {
    Descriptor socket;
    std::string bytes, memo;
    Deadline until;
  };
  void take_in(Descriptor socket, std::string memo);
  void accept_all();
  void drop_late();
  std::optional<Visitor> read(Coming& one, bool& over);

  std::vector<Descriptor> listeners_;
  size_t most_;
  std::list<Coming> coming_;
  std::string strangers_;
  int strangers_count_ = 0;
};

}  // namespace spillway::parallel
