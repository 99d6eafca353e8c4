#include "parallel/sockets/socket_link.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace spillway::parallel {
namespace {

constexpr i64 kStretchBytes = kMiB;  // most bytes of data in one frame; letters are sent between two frames
constexpr i64 kInboxBytes = 64 * kKiB;
constexpr i64 kLongestLetterBytes = 64 * kMiB;

}  // namespace

SocketLink::SocketLink(Descriptor socket, i64 share_bytes)
    : socket_(std::move(socket)), share_bytes_(share_bytes), inbox_(static_cast<size_t>(kInboxBytes)) {}

void SocketLink::put(SocketFrame frame, const void* bytes) {
  if (end_) return;
  frame.check = frame.expected_check();
  const auto* header = reinterpret_cast<const std::byte*>(&frame);
  outbox_.insert(outbox_.end(), header, header + sizeof frame);
  const auto* payload = static_cast<const std::byte*>(bytes);
  if (payload) outbox_.insert(outbox_.end(), payload, payload + frame.bytes);
}

void SocketLink::post(const std::vector<std::byte>& letter) {
  put({.kind = SocketFrame::Kind::letter, .bytes = std::ssize(letter)}, letter.data());
}

void SocketLink::say_farewell() { put({.kind = SocketFrame::Kind::farewell}); }

void SocketLink::send(Ticket ticket, Wire::Channel channel, std::span<const std::byte> bytes, int tag) {
  outgoing_.emplace(ticket, Outgoing{bytes});
  const Address address{channel, tag};
  unmatched_[address].push_back(ticket);
  match(address);
}

void SocketLink::receive(Ticket ticket, Wire::Channel channel, std::span<std::byte> bytes, int tag) {
  incoming_.emplace(ticket, Incoming{bytes});
  put({.kind = SocketFrame::Kind::ready, .channel = static_cast<u16>(channel), .bytes = std::ssize(bytes), .ticket = ticket, .tag = tag});
}

// Matches sends with receives that the other rank has announced. For each channel and tag, the n-th send belongs to the n-th receive.
void SocketLink::match(const Address& address) {
  std::deque<Ticket>& sends = unmatched_[address];
  std::deque<Ready>& readies = ready_[address];
  while (!sends.empty() && !readies.empty()) {
    const auto found = outgoing_.find(sends.front());
    if (found != outgoing_.end()) {
      if (readies.front().bytes != std::ssize(found->second.bytes))
        return end(fmt::format("expected the other rank to receive {} bytes, got a receive of {} bytes", found->second.bytes.size(),
                               readies.front().bytes));
      found->second.to = readies.front().ticket;
      sending_.push_back(found->first);
    }
    sends.pop_front(), readies.pop_front();
  }
  if (sends.empty()) unmatched_.erase(address);
  if (readies.empty()) ready_.erase(address);
}

bool SocketLink::is_done(Ticket ticket) {
  if (const auto sent = outgoing_.find(ticket); sent != outgoing_.end()) {
    if (!sent->second.done) return false;
    outgoing_.erase(sent);
    return true;
  }
  const auto awaited = incoming_.find(ticket);
  if (awaited == incoming_.end() || !awaited->second.done) return false;
  incoming_.erase(awaited);
  return true;
}

// Drops a ticket. If one of its frames has begun, the frame continues without the ticket's buffer: bytes that are left to send are copied
// first, and bytes that arrive are discarded.
void SocketLink::drop(Ticket ticket) {
  if (writing_ && writing_->ticket == ticket) {
    const std::span<const std::byte> rest =
        outgoing_.at(ticket).bytes.subspan(static_cast<size_t>(writing_->offset), static_cast<size_t>(writing_->count));
    writing_->owned.insert(writing_->owned.end(), rest.begin(), rest.end());
    writing_->ticket = 0, writing_->count = 0;
  }
  std::erase(sending_, ticket);
  outgoing_.erase(ticket);
  incoming_.erase(ticket);
}

// Chooses the frame that is written next. Everything in the outbox goes before data. Returns false if there is nothing to write.
bool SocketLink::choose() {
  if (!outbox_.empty()) {
    writing_.emplace();
    writing_->owned.swap(outbox_);
    return true;
  }
  if (sending_.empty()) return false;
  const Ticket ticket = sending_.front();
  sending_.pop_front();
  Outgoing& one = outgoing_.at(ticket);
  const i64 count = std::min(std::ssize(one.bytes) - one.begun, kStretchBytes);
  put({.kind = SocketFrame::Kind::data, .bytes = count, .ticket = one.to});
  writing_.emplace(Writing{.ticket = ticket, .offset = one.begun, .count = count});
  writing_->owned.swap(outbox_);
  one.begun += count;
  return true;
}

bool SocketLink::write_some() {
  Writing& now = *writing_;
  const i64 head = std::ssize(now.owned), after = std::max<i64>(now.written - head, 0), begin = std::min(now.written, head);
  iovec pieces[2] = {{now.owned.data() + begin, static_cast<size_t>(head - begin)}, {}};
  if (now.ticket != 0 && now.count > after) {
    const auto rest =
        outgoing_.at(now.ticket).bytes.subspan(static_cast<size_t>(now.offset + after), static_cast<size_t>(now.count - after));
    pieces[1] = {const_cast<std::byte*>(rest.data()), rest.size()};
  }
  msghdr message{};
  message.msg_iov = pieces, message.msg_iovlen = 2;
  const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    // only writing ends: data that the other rank has sent is still read before that rank counts as gone
    write_is_closed_ = !will_pass(errno);
    return false;
  }
  now.written += sent;
  if (now.written == head + now.count) written_all();
  return true;
}

void SocketLink::written_all() {
  const Ticket ticket = writing_->ticket;
  writing_.reset();
  if (ticket == 0) return;
  Outgoing& one = outgoing_.at(ticket);
  one.done = one.begun == std::ssize(one.bytes);
  if (!one.done) sending_.push_back(ticket);
}

void SocketLink::write() {
  for (i64 turns = 0; turns < share_bytes_ / kStretchBytes && !end_ && !write_is_closed_; ++turns) {
    if (!writing_ && !choose()) return;
    if (!write_some()) return;
  }
}

void SocketLink::read() {
  for (i64 budget = share_bytes_; budget > 0 && !end_;) {
    if (!parse() || !read_some(budget)) return;
  }
  if (!end_) parse();  // parses what arrived last at once, since the other rank may not send more
}

// Reads once from the socket. If much is left for the current destination, reads directly into it, and otherwise into the inbox.
bool SocketLink::read_some(i64& budget) {
  std::span<std::byte> to = reading_ ? room() : std::span<std::byte>();
  const bool direct = std::ssize(to) >= kInboxBytes;
  if (!direct) {
    inbox_begin_ = 0, to = inbox_;
    if (inbox_end_ > 0) to = to.subspan(static_cast<size_t>(inbox_end_));
  }
  const ssize_t got = recv(socket_.get(), to.data(), to.size(), MSG_DONTWAIT);
  if (got < 0 && will_pass(errno)) return false;
  if (got <= 0) {
    end(got == 0 ? "its connection was closed" : std::string("its connection ended: ") + std::strerror(errno));
    return false;
  }
  budget -= got;
  direct ? took(got) : void(inbox_end_ += got);
  return true;
}

// Parses everything in the inbox except an incomplete header, which is moved to the front of the inbox.
bool SocketLink::parse() {
  while (!end_) {
    const i64 there = inbox_end_ - inbox_begin_;
    if (!reading_) {
      if (there < i64{sizeof(SocketFrame)}) break;
      SocketFrame frame;
      std::memcpy(&frame, inbox_.data() + inbox_begin_, sizeof frame);
      inbox_begin_ += i64{sizeof frame};
      if (!begin(frame)) return false;
    } else if (left_ > 0) {
      if (there == 0) break;
      const std::span<std::byte> to = room();
      const i64 count = std::min(there, left_);
      if (!to.empty()) std::memcpy(to.data(), inbox_.data() + inbox_begin_, static_cast<size_t>(count));
      inbox_begin_ += count;
      took(count);
    }
    if (reading_ && left_ == 0) finish_frame();
  }
  std::memmove(inbox_.data(), inbox_.data() + inbox_begin_, static_cast<size_t>(inbox_end_ - inbox_begin_));
  inbox_end_ -= inbox_begin_, inbox_begin_ = 0;
  return !end_;
}

bool SocketLink::begin(const SocketFrame& frame) {
  const auto refuse = [&](const char* what) {
    end(std::string("expected ") + what + " from the other rank, got something else");
    return false;
  };
  if (!frame.is_whole() || frame.kind > SocketFrame::Kind::goodbye) return refuse("a valid message header");
  if (frame.kind == SocketFrame::Kind::letter) {
    if (frame.bytes > kLongestLetterBytes) return refuse("a control message of at most 64 MiB");
    letter_.resize(static_cast<size_t>(frame.bytes));
  }
  if (frame.kind == SocketFrame::Kind::data) {
    const auto to = incoming_.find(frame.ticket);
    if (to != incoming_.end() && frame.bytes > std::ssize(to->second.bytes) - to->second.filled)
      return refuse("no more bytes than requested");
  }
  const bool carries = frame.kind == SocketFrame::Kind::letter || frame.kind == SocketFrame::Kind::data;
  reading_ = frame;
  left_ = carries ? frame.bytes : 0;
  return true;
}

// Returns where the next bytes of the current frame are stored, or nothing if the receive that they belong to was dropped.
std::span<std::byte> SocketLink::room() {
  const auto left = static_cast<size_t>(left_);
  if (reading_->kind == SocketFrame::Kind::letter) return std::span(letter_).last(left);
  const auto to = incoming_.find(reading_->ticket);
  if (to == incoming_.end()) return {};
  return to->second.bytes.subspan(static_cast<size_t>(to->second.filled), left);
}

void SocketLink::took(i64 bytes) {
  left_ -= bytes;
  if (reading_->kind != SocketFrame::Kind::data) return;
  if (const auto to = incoming_.find(reading_->ticket); to != incoming_.end()) to->second.filled += bytes;
}

void SocketLink::finish_frame() {
  const SocketFrame frame = *reading_;
  reading_.reset();
  switch (frame.kind) {
    case SocketFrame::Kind::letter:
      letters_.push_back(std::move(letter_));
      letter_.clear();
      break;
    case SocketFrame::Kind::ready: {
      const Address address{static_cast<Wire::Channel>(frame.channel), frame.tag};
      ready_[address].push_back({frame.ticket, frame.bytes});
      match(address);
      break;
    }
    case SocketFrame::Kind::data: {
      const auto to = incoming_.find(frame.ticket);
      if (to != incoming_.end()) to->second.done = to->second.filled == std::ssize(to->second.bytes);
      break;
    }
    case SocketFrame::Kind::farewell:
      said_farewell_ = true;
      put({.kind = SocketFrame::Kind::goodbye});
      break;
    case SocketFrame::Kind::goodbye:
      is_answered_ = true;
      break;
  }
}

void SocketLink::end(const std::string& why) {
  if (!end_) end_ = why;
  outbox_.clear(), sending_.clear(), writing_.reset();
}

}  // namespace spillway::parallel
