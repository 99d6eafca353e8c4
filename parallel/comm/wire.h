// The transport that processes need to be ranks: bytes to and from any rank, and memory that the ranks of one node share. The communicator
// of processes (process_world.h) knows only this interface; it is implemented with MPI in communicator_mpi.cc and with sockets and shared
// memory in socket_wire.h. Used by one thread at a time.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::parallel {

class Wire {
 public:
  /// Separate streams of bytes between two ranks.
  enum class Channel : u8 { collective, message };
  /// Identifies a send or receive in progress.
  using Ticket = u64;
  static constexpr i64 kTags = 1 << 20;
  struct Letter {
    int from;
    std::vector<std::byte> bytes;
  };

  /// A rank whose process has ended, and how this was noticed.
  struct Gone {
    int rank;
    std::string how;
  };

  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Returns the shared memory of `rank`, which this process can access too; its size is the same for all ranks and it is zero at first.
  /// Empty if `rank` is on another node.
  virtual std::span<std::byte> memory_of(int rank) = 0;

  /// Start to send or receive any number of bytes. Those of one sender, channel and tag (below kTags) arrive in the order sent. The buffer
  /// must stay valid until is_done().
  virtual Ticket send(Channel channel, std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual Ticket receive(Channel channel, std::span<std::byte> bytes, int from, int tag) = 0;
  /// Returns true, once, when the buffer has been sent or filled.
  virtual bool is_done(Ticket ticket) = 0;
  /// Gives up a send or receive. A receive then leaves its buffer alone, except that a sender that hangs in the middle may still be filling
  /// it.
  virtual void drop(Ticket ticket) = 0;

  /// Sends a short letter. Letters of one sender arrive in the order posted.
  virtual void post(int to, std::vector<std::byte> letter) = 0;
  /// Returns the next letter that has arrived, if any.
  virtual std::optional<Letter> next_letter() = 0;
  /// Returns the ranks whose processes were seen to end without a farewell since the last call. Every letter of theirs has been returned by
  /// next_letter() before. Empty for a wire that cannot detect this.
  virtual std::vector<Gone> gone() { return {}; }
  /// Stops waiting for that rank, also in close(). Returns false if this wire cannot go on without it.
  virtual bool give_up(int) { return false; }
  /// Returns true if every posted letter has left this process.
  virtual bool all_posted() = 0;

  /// Closes the wire. Called by all ranks when no operation is in progress any more.
  virtual void close() = 0;
};

}  // namespace spillway::parallel
