// The control messages ("letters") that ranks in processes send each other: who called which collective, which data is offered, who left.
// Plain values. The binary layout is that of one build on one kind of machine, since all ranks of a run use the same build.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/collective.h"

namespace spillway::parallel {

struct ProcessLetter {
  enum class Kind : i64 {
    came,    // a member called a collective. a: its number; words: the call
    offers,  // a member offers a message. a: tag, b: bytes, c: the sender's serial number
    takes,   // a receiver accepts it. a: serial number, b: bytes expected; if these differ from the offer, both sides fail
    left,    // a member left. a: the first exchange in which it does not take part
    broken,  // the group is broken. a: as for `left`; text: why; words: ranks that nobody waits for any more
    alive,
  };
  Kind kind = Kind::alive;
  i64 group = 0, a = 0, b = 0, c = 0;
  std::vector<i64> words = {};
  std::string text = {};

  /// Returns the approximate size in memory, in bytes.
  i64 bytes() const { return i64{sizeof *this} + std::ssize(words) * i64{sizeof(i64)} + std::ssize(text); }
  std::vector<std::byte> to_bytes() const;
  /// Parses a letter. Throws Error(peer) if the bytes are not a valid one.
  static ProcessLetter of(std::span<const std::byte> bytes);
};

/// A member's call of a collective as other members see it: buffers have a size but no address. It also carries what a split needs from
/// every member.
struct ComingCall {
  Call call;
  i64 next_group = 0;  // the first group number that the member has not used
  i64 area = 0;        // offset of the new group's staging in the member's shared memory; -1: there is no room

  std::vector<i64> to_words() const;
  /// Throws Error(peer) if the words are not a valid call.
  static ComingCall of(const std::vector<i64>& words);
};

}  // namespace spillway::parallel
