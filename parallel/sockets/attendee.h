// Says where a rank can be reached before connections exist, and defines the lines of text
// (greeting.h) in which ranks exchange these addresses at the rendezvous. Plain values.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "parallel/sockets/greeting.h"

namespace spillway::parallel {

/// Parses a number; returns -1 if the text is not a number.
int to_number(const std::string& text);
/// Returns names such as "rank 3" or "ranks 1, 2".
std::string rank_names(const std::vector<int>& ranks);

struct Attendee {
  std::string host, node, near_name, far_host;  // addresses of the rank; ranks with the same `node` share memory
  int far_port = 0;
  static constexpr size_t kWords = 5;

  void put(Words& words) const;
  static Attendee of(const Words& words, size_t at);
};

/// The first message of a rank to rank 0, which compares the sender's build and number of ranks with its own.
struct Introduction {
  std::string build;
  int rank = 0, size = 0;
  Attendee who;
  static constexpr size_t kWords = 3 + Attendee::kWords;

  Words to_words() const;
  /// Parses an introduction. Returns nothing if the words are not an introduction.
  static std::optional<Introduction> of(const Words& words);
};

/// Holds the addresses of all ranks, by rank, and a random word, `session`, that no other
/// rendezvous has used. A connection proves with this word that it belongs to this run.
struct Roster {
  std::string session;
  std::vector<Attendee> all;

  Words to_words() const;
  /// Parses a roster. Returns nothing if the words are not a roster of that many ranks.
  static std::optional<Roster> of(const Words& words, int size);
};

}  // namespace spillway::parallel
