// A Wire is the transport that processes need to act as ranks. It carries bytes to and from any rank, and it provides memory that the
// ranks of one node share. The communicator of processes (process_world.h) knows only this interface. It is implemented with MPI in
// communicator_mpi.cc, and with sockets and shared memory in socket_wire.h. Used by one thread at a time.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::parallel {

class Wire {
 public:
  /// Two ranks have a separate stream of bytes for each of these purposes.
  enum class Channel : u8 { collective, message };
  /// Identifies a send or receive in progress.
  using Ticket = u64;
  static constexpr i64 kTags = 1 << 20;
  struct Letter {
    int from;
    std::vector<std::byte> bytes;
  };

  /// A rank whose process has ended, and a text that says how this was noticed.
  struct Gone {
    int rank;
    std::string how;
  };

  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Returns the shared memory of `rank`, which this process can read and write too. The memory has the same
  /// size for all ranks and holds zeros at first. The result is empty if `rank` is on another node.
  virtual std::span<std::byte> memory_of(int rank) = 0;

  /// send() and receive() start to transfer any number of bytes. Bytes of the same sender, channel and tag (below
  /// kTags) arrive in the order sent. The buffer must stay valid until is_done() returns true.
  virtual Ticket send(Channel channel, std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual Ticket receive(Channel channel, std::span<std::byte> bytes, int from, int tag) = 0;
  /// Returns true when the ticket's buffer has been sent or filled. It does so once for each ticket.
  virtual bool is_done(Ticket ticket) = 0;
  /// Gives up a send or receive. The buffer of a receive is then no longer written, with one exception:
  /// if its sender stopped in the middle of the data, the rest may still arrive there.
  virtual void drop(Ticket ticket) = 0;

  /// Sends a letter (a short control message). Letters of one sender arrive in the order posted.
  virtual void post(int to, std::vector<std::byte> letter) = 0;
  /// Returns the next letter that has arrived, if any.
  virtual std::optional<Letter> next_letter() = 0;
  /// Returns the ranks whose processes were seen to end without a farewell since the last call. Before this, next_letter() has returned
  /// every letter of these ranks. Always empty if the wire cannot detect the end of a process.
  virtual std::vector<Gone> gone() { return {}; }
  /// Stops waiting for this rank, also in close(). Returns false if the wire cannot go on without the rank.
  virtual bool give_up(int) { return false; }
  /// Returns true if every posted letter has left this process.
  virtual bool all_posted() = 0;

  /// Closes the wire. Called by all ranks when no operation is in progress any more.
  virtual void close() = 0;
};

}  // namespace spillway::parallel
