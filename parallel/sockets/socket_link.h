// The stream between this rank and one other, as frames: letters, and data that are sent when the receiver has said that it has room for
// them, so that nothing is kept on the way. Whatever a ticket's buffer is, it is not touched any more once the ticket is done or dropped,
// in the middle of a frame too. One thread at a time; nothing blocks but close().
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
  /// `share_bytes`: what one read() takes at most, and a piece more.
  explicit SocketLink(Descriptor socket, i64 share_bytes = 8 * kMiB);

  void post(const std::vector<std::byte>& letter);
  void send(Ticket ticket, Wire::Channel channel, std::span<const std::byte> bytes, int tag);
  void receive(Ticket ticket, Wire::Channel channel, std::span<std::byte> bytes, int tag);
  bool is_done(Ticket ticket);
  void drop(Ticket ticket);

  /// As much as the socket takes and gives now, and no more than a bounded share. Letters that arrived are in letters().
  void read();
  void write();
  std::deque<std::vector<std::byte>>& letters() { return letters_; }
  bool has_to_write() const { return !end_ && !write_is_closed_ && (writing_ || !outbox_.empty() || !sending_.empty()); }
  bool all_posted() const { return end_ || write_is_closed_ || (outbox_.empty() && !(writing_ && writing_->ticket == 0)); }

  /// Why nothing can come any more; empty while the other is there.
  const std::optional<std::string>& end() const { return end_; }
  /// It said that it goes: no death.
  bool said_farewell() const { return said_farewell_; }
  int descriptor() const { return socket_.get(); }

  /// Nothing more is read or written.
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
    i64 begun = 0;  // bytes in frames
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
  // The frame that is being written: of the outbox, or a header and a stretch of a ticket's bytes.
  struct Writing {
    std::vector<std::byte> owned;
    Ticket ticket = 0;  // 0: all is in `owned`
    i64 offset = 0, count = 0;
    i64 written = 0;  // of owned, then of the stretch
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

  std::vector<std::byte> outbox_;  // whole frames
  std::map<Ticket, Outgoing> outgoing_;
  std::map<Address, std::deque<Ticket>> unmatched_;  // sent here, dropped ones too: they keep their place
  std::map<Address, std::deque<Ready>> ready_;       // awaited there
  std::deque<Ticket> sending_;
  std::optional<Writing> writing_;

  std::map<Ticket, Incoming> incoming_;
  std::deque<std::vector<std::byte>> letters_;
  std::vector<std::byte> inbox_;
  i64 inbox_begin_ = 0, inbox_end_ = 0;
  std::optional<SocketFrame> reading_;
  std::vector<std::byte> letter_;
  i64 left_ = 0;  // of the frame that is being read
};

}  // namespace spillway::parallel
