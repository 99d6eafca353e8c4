// A SocketLink is the stream of frames between this rank and one other rank. It carries letters and data. Data is sent only once
// the receiver has announced a buffer for it, so no data has to be stored on the way. Once a ticket is done or dropped, its
// buffer is no longer used, even in the middle of a frame. Used by one thread at a time; nothing blocks.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "parallel/sockets/socket.h"
#include "parallel/sockets/socket_frame.h"

namespace spillway::parallel {

class SocketLink {
 public:
  using Ticket = Wire::Ticket;
  /// Makes a link over a connected socket. One call of read() or write() transfers about `share_bytes` at most.
  explicit SocketLink(Descriptor socket, i64 share_bytes = 8 * kMiB);

  void post(const std::vector<std::byte>& letter);
  void send(Ticket ticket, Wire::Channel channel, std::span<const std::byte> bytes, int tag);
  void receive(Ticket ticket, Wire::Channel channel, std::span<std::byte> bytes, int tag);
  bool is_done(Ticket ticket);
  void drop(Ticket ticket);

  /// read() and write() transfer as much as the socket accepts or provides now, up to about
  /// share_bytes. After read(), letters() holds the letters that have arrived.
  void read();
  void write();
  std::deque<std::vector<std::byte>>& letters() { return letters_; }
  bool has_to_write() const { return !end_ && !write_is_closed_ && (writing_ || !outbox_.empty() || !sending_.empty()); }
  bool all_posted() const { return end_ || write_is_closed_ || (outbox_.empty() && !(writing_ && writing_->ticket == 0)); }

  /// Returns why no more data can arrive, or nothing as long as the other rank is connected.
  const std::optional<std::string>& end() const { return end_; }
  /// Returns true if the other rank has announced that it leaves, so the end of its connection is not a failure.
  bool said_farewell() const { return said_farewell_; }
  int descriptor() const { return socket_.get(); }

  /// Ends the link, so that nothing more is read or written.
  void end(const std::string& why);
  void say_farewell();
  bool is_answered() const { return is_answered_ || said_farewell_ || end_; }

 private:
  struct Address {
    Wire::Channel channel;
    int tag;
    auto operator<=>(const Address&) const = default;
  };
  struct Outgoing {
    std::span<const std::byte> bytes;
    i64 begun = 0;  // number of bytes of the ticket's buffer that have been put into frames so far
    u64 to = 0;     // the receiver's ticket
    bool done = false;
  };
  struct Incoming {
    std::span<std::byte> bytes;
    i64 filled = 0;
    bool done = false;
  };
  struct Ready {
    u64 ticket;
    i64 bytes;
  };
  // Describes the frame that is being written. It consists of bytes of the outbox, or of a header and a part of a ticket's buffer.
  struct Writing {
    std::vector<std::byte> owned;
    Ticket ticket = 0;  // the ticket whose buffer the frame continues with; 0: the whole frame is in `owned`
    i64 offset = 0, count = 0;
    i64 written = 0;  // number of bytes of the frame written so far, first those of `owned` and then those of the buffer's part
  };

  void put(SocketFrame frame, const void* bytes = nullptr);
  void match(const Address& address);
  bool choose();
  bool write_some();
  void written_all();
  bool read_some(i64& budget);
  bool parse();
  bool begin(const SocketFrame& frame);
  std::span<std::byte> room();
  void took(i64 bytes);
  void finish_frame();

  Descriptor socket_;
  const i64 share_bytes_;
  std::optional<std::string> end_;
  bool write_is_closed_ = false, said_farewell_ = false, is_answered_ = false;

  std::vector<std::byte> outbox_;  // complete frames that wait to be written
  std::map<Ticket, Outgoing> outgoing_;
  // sends of this rank for which the other rank has not announced a receive; dropped ones keep their place
  std::map<Address, std::deque<Ticket>> unmatched_;
  std::map<Address, std::deque<Ready>> ready_;  // receives that the other rank has announced and that have no send yet
  std::deque<Ticket> sending_;
  std::optional<Writing> writing_;

  std::map<Ticket, Incoming> incoming_;
  std::deque<std::vector<std::byte>> letters_;
  std::vector<std::byte> inbox_;
  i64 inbox_begin_ = 0, inbox_end_ = 0;
  std::optional<SocketFrame> reading_;
  std::vector<std::byte> letter_;
  i64 left_ = 0;  // number of bytes of the current frame that have not been read yet
};

}  // namespace spillway::parallel
