// What processes need of each other to be ranks: bytes to and from any of them, and memory that those of one node share. The communicator
// of processes (process_world.h) knows only this; MPI is behind it in communicator_mpi.cc, sockets and shared memory
// in socket_wire.h. One thread at a time.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::parallel {

class Wire {
 public:
  /// Streams of bytes that do not mix.
  enum class Channel : u8 { collective, message };
  /// Something under way.
  using Ticket = u64;
  static constexpr i64 kTags = 1 << 20;
  struct Letter {
    int from;
    std::vector<std::byte> bytes;
  };

  /// A rank whose process is no more, and how that shows.
  struct Gone {
    int rank;
    std::string how;
  };

  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Memory of `rank` that this process sees too, the same size for all and zero at first; empty where `rank` is on another node.
  virtual std::span<std::byte> memory_of(int rank) = 0;

  /// Bytes of any count. Those of one sender, channel and tag (below kTags) arrive in the order sent. The buffer stays until
  /// is_done.
  virtual Ticket send(Channel channel, std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual Ticket receive(Channel channel, std::span<std::byte> bytes, int from, int tag) = 0;
  /// True, once, when the buffer is free, or filled.
  virtual bool is_done(Ticket ticket) = 0;
  /// Given up: a receive fills its buffer no more, unless it is being filled by a sender that hangs in the middle.
  virtual void drop(Ticket ticket) = 0;

  /// Short letters: those of one sender arrive in the order posted.
  virtual void post(int to, std::vector<std::byte> letter) = 0;
  /// The next that arrived, if any.
  virtual std::optional<Letter> next_letter() = 0;
  /// Whose end was seen since the last call, without a farewell; every letter of theirs has been given out before. A wire that cannot see
  /// that has none.
  virtual std::vector<Gone> gone() { return {}; }
  /// Nothing is awaited of that rank any more, by close() neither. False: this wire cannot do without it.
  virtual bool give_up(int) { return false; }
  /// Nothing posted is left here.
  virtual bool all_posted() = 0;

  /// All ranks, after nothing is under way any more.
  virtual void close() = 0;
};

}  // namespace spillway::parallel
