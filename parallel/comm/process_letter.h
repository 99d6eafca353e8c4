// Defines the control messages ("letters") that ranks in processes send each other: who called which
// collective, which data is offered, who left. Plain values. The binary layout may differ between builds and
// kinds of machine; this is no problem, since all ranks of a run use the same build.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/collective.h"

namespace spillway::parallel {

struct ProcessLetter {
  enum class Kind : i64 {
    came,    // a member called a collective. a: its index among the member's calls; words: the call
    offers,  // a member offers a message. a: tag, b: bytes, c: the sender's serial number
    takes,   // a receiver accepts an offer. a: serial number, b: bytes expected; if b differs from the offer, both sides fail
    left,    // a member left. a: index of the first exchange in which it does not take part
    broken,  // the group is broken. a: first exchange without the sender; text: the reason; words: ranks for which nobody waits any more
    alive,
  };
  Kind kind = Kind::alive;
  i64 group = 0, a = 0, b = 0, c = 0;
  std::vector<i64> words = {};
  std::string text = {};

  /// Returns the approximate size of the letter in memory, in bytes.
  i64 bytes() const { return i64{sizeof *this} + std::ssize(words) * i64{sizeof(i64)} + std::ssize(text); }
  std::vector<std::byte> to_bytes() const;
  /// Parses a letter. Throws Error(peer) if the bytes are not a valid letter.
  static ProcessLetter of(std::span<const std::byte> bytes);
};

/// A ComingCall is a member's call of a collective as the other members see it: buffers have a
/// size but no address. It also carries what a split must know of every member.
struct ComingCall {
  Call call;
  i64 next_group = 0;  // the first group number that is still free on this member
  i64 area = 0;        // offset of the new group's staging buffer in the member's shared memory; -1: no space is left

  std::vector<i64> to_words() const;
  /// Parses the words of a letter. Throws Error(peer) if they are not a valid call.
  static ComingCall of(const std::vector<i64>& words);
};

}  // namespace spillway::parallel
