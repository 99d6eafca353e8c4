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
constexpr double kPatience_s = 10;  // for the words of one who came

// What is still missing of a frame that begins so; 0: nothing; empty: no frame begins so.
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
      why = "speaks something else";
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

void Reception::take_in(Descriptor socket, std::string memo) {
  if (coming_.size() >= most_) {
    note_stranger(coming_.front().socket, "says nothing");
    coming_.pop_front();
  }
  coming_.push_back({std::move(socket), "", std::move(memo), deadline_in(kPatience_s)});
}

void Reception::come_again(Descriptor socket, std::string memo) { take_in(std::move(socket), std::move(memo)); }

// No more than may wait: what they said is read before the next come.
void Reception::accept_all() {
  size_t accepted = 0;
  for (const Descriptor& listener : listeners_) {
    while (accepted < most_ / 2) {
      Descriptor socket = accept_from(listener);
      if (!socket) break;
      ++accepted;
      if (is_of_this_user(socket)) {
        take_in(std::move(socket), "");
      } else {
        note_stranger(socket, "belongs to another user");
      }
    }
  }
}

void Reception::drop_late() {
  while (!coming_.empty() && milliseconds_until(coming_.front().until) == 0) {
    note_stranger(coming_.front().socket, "says nothing");
    coming_.pop_front();
  }
}

// Never more than belongs to the frame: what follows it is somebody else's to read.
std::optional<Reception::Visitor> Reception::read(Coming& one, bool& over) {
  for (;;) {
    const std::optional<size_t> more = missing(one.bytes, kMostGreetingBytes);
    if (!more) {
      note_stranger(one.socket, "speaks something else");
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

std::optional<Reception::Visitor> Reception::next(Deadline deadline) {
  for (;;) {
    accept_all();
    drop_late();
    for (auto one = coming_.begin(); one != coming_.end();) {
      bool over = false;
      std::optional<Visitor> visitor = read(*one, over);
      one = over ? coming_.erase(one) : std::next(one);
      if (visitor) return visitor;
    }
    if (milliseconds_until(deadline) == 0) return std::nullopt;
    const int left_ms = milliseconds_until(coming_.empty() ? deadline : std::min(deadline, coming_.front().until));
    std::vector<pollfd> all;
    for (const Descriptor& listener : listeners_) all.push_back({listener.get(), POLLIN, 0});
    for (const Coming& one : coming_) all.push_back({one.socket.get(), POLLIN, 0});
    poll(all.data(), all.size(), left_ms);
  }
}

void Reception::note_stranger(const Descriptor& socket, const std::string& what) {
  if (++strangers_count_ > kNamedStrangers) return;
  const std::string who = SocketAddress::of_other_end(socket).text();
  strangers_ += "; " + (who.empty() ? "a process of this node" : who) + " connected, which " + what;
}

std::string Reception::strangers() const { return strangers_; }

}  // namespace spillway::parallel
