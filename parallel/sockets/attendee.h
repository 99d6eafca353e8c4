// A rank as the others come to know it before they are linked, and what it says when it comes: lines of text (greeting.h). Values.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "parallel/sockets/greeting.h"

namespace spillway::parallel {

/// -1 for what is no number.
int to_number(const std::string& text);
/// "rank 3", "ranks 1, 2".
std::string rank_names(const std::vector<int>& ranks);

struct Attendee {
  std::string host, node, near_name, far_host;  // ranks with one `node` share memory
  int far_port = 0;
  static constexpr size_t kWords = 5;

  void put(Words& words) const;
  static Attendee of(const Words& words, size_t at);
};

/// What rank 0 compares with its own.
struct Introduction {
  std::string build;
  int rank = 0, size = 0;
  Attendee who;
  static constexpr size_t kWords = 3 + Attendee::kWords;

  Words to_words() const;
  /// Empty: it is none.
  static std::optional<Introduction> of(const Words& words);
};

/// Who all are, by rank, and a word that no other meeting has had: the links of this one are known by proofs of it.
struct Roster {
  std::string session;
  std::vector<Attendee> all;

  Words to_words() const;
  /// Empty: it is none of so many ranks.
  static std::optional<Roster> of(const Words& words, int size);
};

}  // namespace spillway::parallel
