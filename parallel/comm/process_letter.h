// The letters that ranks in processes write each other: who came to which collective, what is sent, who left. Values; the layout is that of
// one build on one kind of machine, as ranks of one run are.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/collective.h"

namespace spillway::parallel {

struct ProcessLetter {
  enum class Kind : i64 {
    came,    // a: number of the collective; words: the call
    offers,  // a: tag, b: bytes, c: serial number of the sender's
    takes,   // a: serial number, b: bytes awaited; where they differ from those offered both sides fail
    left,    // a: the first exchange that the member takes no part in
    broken,  // a: the same; text: why; words: the ranks that nobody waits for any more
    alive,
  };
  Kind kind = Kind::alive;
  i64 group = 0, a = 0, b = 0, c = 0;
  std::vector<i64> words = {};
  std::string text = {};

  /// Of memory, about.
  i64 bytes() const { return i64{sizeof *this} + std::ssize(words) * i64{sizeof(i64)} + std::ssize(text); }
  std::vector<std::byte> to_bytes() const;
  /// Error(peer): it is none, in whatever way.
  static ProcessLetter of(std::span<const std::byte> bytes);
};

/// A member's call as the others see it: buffers have a size and no address. Beside it what a split needs of everyone.
struct ComingCall {
  Call call;
  i64 next_group = 0;  // the first number that no group of the member's has had
  i64 area = 0;        // where in the member's shared memory the new group's staging may lie; -1: nowhere

  std::vector<i64> to_words() const;
  /// Error(peer).
  static ComingCall of(const std::vector<i64>& words);
};

}  // namespace spillway::parallel
