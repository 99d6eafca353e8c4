#include "parallel/sockets/greeting.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace spillway::parallel {
namespace {

constexpr std::string_view kMagic = "SPILLWAY";
constexpr size_t kHeaderBytes = kMagic.size() + sizeof(u32);
constexpr int kNamedStrangers = 3;
constexpr double kPatience_s = 10;  // seconds in which a process must send its words once it has connected

// Returns how many bytes of the frame that begins with `bytes` are still missing, or 0 if the frame is
// complete. Returns nothing if this is not a frame, or if the frame would have more than `most` bytes.
std::optional<size_t> missing(const std::string& bytes, u32 most) {
  if (!kMagic.starts_with(std::string_view(bytes).substr(0, kMagic.size()))) return std::nullopt;
  if (bytes.size() < kHeaderBytes) return kHeaderBytes - bytes.size();
  u32 count = 0;
  std::memcpy(&count, bytes.data() + kMagic.size(), sizeof count);
  if (count > most) return std::nullopt;
  return kHeaderBytes + count - bytes.size();
}

Words words_of(const std::string& frame) {
  Words words;
  for (size_t begin = kHeaderBytes; begin < frame.size();) {
    const size_t end = frame.find('\n', begin);
    words.push_back(frame.substr(begin, end - begin));
    begin = end == std::string::npos ? frame.size() : end + 1;
  }
  return words;
}

}  // namespace

bool send_words(const Descriptor& socket, const Words& words, Deadline deadline) {
  std::string text;
  for (const std::string& word : words) text += word + '\n';
  const auto count = static_cast<u32>(text.size());
  std::string frame(kMagic);
  frame.append(reinterpret_cast<const char*>(&count), sizeof count);
  frame += text;
  return send_all(socket, frame.data(), frame.size(), deadline);
}

std::optional<Words> receive_words(const Descriptor& socket, Deadline deadline, std::string& why, u32 most) {
  std::string frame;
  for (;;) {
    const std::optional<size_t> more = missing(frame, most);
    if (!more) {
      why = "uses another protocol";
      return std::nullopt;
    }
    if (*more == 0) return words_of(frame);
    const size_t there = frame.size();
    frame.resize(there + *more);
    if (!receive_all(socket, frame.data() + there, *more, deadline)) {
      why = milliseconds_until(deadline) == 0 ? "does not answer" : "closed the connection";
      return std::nullopt;
    }
  }
}

Reception::Reception(std::vector<Descriptor> listeners, size_t most, size_t most_a_second) : most_(most), most_a_second_(most_a_second) {
  for (Descriptor& one : listeners) doors_.push_back({std::move(one)});
}

// Closes one connection whose greeting is not complete, so that another one can be accepted. Returns false if no connection may be
// closed.
bool Reception::give_way() {
  auto one = std::ranges::find_if(coming_, [](const Coming& c) { return c.memo.empty(); });
  if (one == coming_.end()) one = std::ranges::find_if(coming_, [](const Coming& c) { return c.until != kAwaited; });
  if (one == coming_.end()) return false;
  note_stranger(one->socket, "sent nothing");
  coming_.erase(one);
  return true;
}

void Reception::take_in(Descriptor socket, std::string memo) {
  if (coming_.size() >= most_) give_way();
  coming_.push_back({std::move(socket), std::move(memo), deadline_in(kPatience_s)});
}

void Reception::come_again(Descriptor socket, std::string memo) { take_in(std::move(socket), std::move(memo)); }

void Reception::await(Descriptor socket, std::string memo) { coming_.push_back({std::move(socket), std::move(memo), kAwaited}); }

void Reception::accept_all() {
  if (milliseconds_until(next_second_) == 0) {
    next_second_ = deadline_in(1);
    for (Door& door : doors_) door.let_in = 0;
  }
  for (Door& door : doors_) accept_some(door);
}

// Accepts only as many connections as there is room for; their words are read before more are accepted. If
// there is no file descriptor for another connection, closes one whose greeting is not complete.
void Reception::accept_some(Door& door) {
  const size_t share = std::max<size_t>(most_ / 2 / doors_.size(), 1);
  for (size_t accepted = 0; accepted < share && door.let_in < most_a_second_;) {
    Descriptor socket = accept_from(door.listener);
    if (!socket) {
      if (errno != EMFILE && errno != ENFILE) return;
      if (!give_way()) door.let_in = most_a_second_;
      continue;
    }
    ++accepted, ++door.let_in;
    is_of_this_user(socket) ? take_in(std::move(socket), "") : note_stranger(socket, "belongs to another user");
  }
}

void Reception::drop_late() {
  std::erase_if(coming_, [&, now = std::chrono::steady_clock::now()](const Coming& one) {
    if (one.until > now) return false;
    note_stranger(one.socket, "sent nothing");
    return true;
  });
}

// Reads from the connection until its words are complete. Does not read beyond their frame, because other code reads what follows.
std::optional<Reception::Visitor> Reception::read(Coming& one, bool& over) {
  for (;;) {
    const std::optional<size_t> more = missing(one.bytes, kMostGreetingBytes);
    if (!more) {
      note_stranger(one.socket, "uses another protocol");
      over = true;
      return std::nullopt;
    }
    if (*more == 0) {
      over = true;
      return Visitor{std::move(one.socket), words_of(one.bytes), std::move(one.memo)};
    }
    std::string piece(*more, '\0');
    const ssize_t got = recv(one.socket.get(), piece.data(), piece.size(), 0);
    if (got <= 0) {
      over = got == 0 || (errno != EAGAIN && errno != EINTR);
      return std::nullopt;
    }
    one.bytes.append(piece, 0, static_cast<size_t>(got));
  }
}

std::optional<Reception::Visitor> Reception::read_all() {
  for (auto one = coming_.begin(); one != coming_.end();) {
    bool over = false;
    const bool awaited = one->until == kAwaited;
    std::optional<Visitor> visitor = read(*one, over);
    if (over && awaited && !visitor) visitor = Visitor{{}, {}, std::move(one->memo)};
    one = over ? coming_.erase(one) : std::next(one);
    if (visitor) return visitor;
  }
  return std::nullopt;
}

// Waits until a connection or bytes arrive, or the deadline passes. A listening socket that may not
// accept more connections in this second is not watched until the next second.
void Reception::wait(Deadline deadline) const {
  std::vector<pollfd> all;
  for (const Door& door : doors_) {
    const bool lets_in = door.let_in < most_a_second_;
    if (lets_in) all.push_back({door.listener.get(), POLLIN, 0});
    if (!lets_in) deadline = std::min(deadline, next_second_);
  }
  for (const Coming& one : coming_) {
    all.push_back({one.socket.get(), POLLIN, 0});
    deadline = std::min(deadline, one.until);
  }
  poll(all.data(), all.size(), milliseconds_until(deadline));
}

std::optional<Reception::Visitor> Reception::next(Deadline deadline) {
  for (;;) {
    accept_all();
    drop_late();
    if (auto visitor = read_all()) return visitor;
    if (milliseconds_until(deadline) == 0) return std::nullopt;
    wait(deadline);
  }
}

void Reception::note_stranger(const Descriptor& socket, const std::string& what) {
  if (++strangers_count_ > kNamedStrangers) return;
  const std::string who = SocketAddress::of_other_end(socket).text();
  strangers_ += "; " + (who.empty() ? "a process of this node" : who) + " connected but " + what;
}

std::string Reception::strangers() const {
  const int more = strangers_count_ - kNamedStrangers;
  return strangers_ + (more > 0 ? "; and " + std::to_string(more) + " more" : "");
}

}  // namespace spillway::parallel
