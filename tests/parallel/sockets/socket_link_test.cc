// Tests a SocketLink between two ends in this process: transfers dropped in the middle, invalid frames, and an end that closes.
#include "parallel/sockets/socket_link.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <random>

namespace spillway::parallel::socket_link_test {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr auto kMessage = Wire::Channel::message;
constexpr auto kCollective = Wire::Channel::collective;
constexpr size_t kLarge = 24 << 20;  // bytes of a message that exceeds a socket buffer and what several turns transfer

Bytes pattern(size_t count, int seed) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 2654435761u + static_cast<size_t>(seed) * 97) >> 7);
  return bytes;
}

struct Pair {
  std::unique_ptr<SocketLink> a, b;
  int raw = -1;  // the descriptor of the second end, also if `b` is not a SocketLink
  explicit Pair(bool linked = true) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) throw std::runtime_error("socketpair");
    a = std::make_unique<SocketLink>(Descriptor(ends[0]));
    raw = ends[1];
    if (linked) b = std::make_unique<SocketLink>(Descriptor(ends[1]));
  }
  void turn() {
    for (SocketLink* one : {a.get(), b.get()}) {
      if (one) one->write(), one->read();
    }
  }
  template <class Until>
  bool turn_until(Until until) {
    for (int k = 0; k < 10'000; ++k) {
      if (until()) return true;
      turn();
    }
    return false;
  }
};

TEST(SocketLink, LettersOvertakeDataAndEveryByteArrives) {
  Pair pair;
  const Bytes out = pattern(kLarge, 1), letter = pattern(100'000, 2);
  Bytes in(kLarge);
  pair.a->send(1, kMessage, out, 5);
  pair.b->receive(1, kMessage, in, 5);
  pair.turn();
  pair.turn();
  pair.a->post(letter);
  ASSERT_TRUE(pair.turn_until([&] { return !pair.b->letters().empty(); }));
  EXPECT_EQ(pair.b->letters().front(), letter);
  EXPECT_FALSE(pair.b->is_done(1));
  ASSERT_TRUE(pair.turn_until([&] { return pair.b->is_done(1); }));
  EXPECT_TRUE(pair.a->is_done(1));
  EXPECT_EQ(in, out);
}

// Shows that a message is delivered at once even if its last bytes use up what one turn may read. No later data would wake the reader.
TEST(SocketLink, WhatEndsWithATurnsShareIsThereAtOnce) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  SocketLink from{Descriptor(ends[0])}, to{Descriptor(ends[1]), 32 * kKiB};
  const Bytes letter = pattern(32 * kKiB - sizeof(SocketFrame), 1);
  from.post(letter);
  from.write();
  to.read();
  ASSERT_EQ(to.letters().size(), 1u);
  EXPECT_EQ(to.letters().front(), letter);
}

TEST(SocketLink, NothingIsSentBeforeThereIsRoom) {
  Pair pair;
  const Bytes out = pattern(1000, 1);
  pair.a->send(1, kCollective, out, 5);
  for (int k = 0; k < 10; ++k) pair.turn();
  EXPECT_FALSE(pair.a->is_done(1));
  Bytes other(1000), in(1000);
  pair.b->receive(1, kMessage, other, 5);  // a receive on another channel does not match this message
  pair.b->receive(2, kCollective, in, 6);  // a receive with another tag does not match this message
  for (int k = 0; k < 10; ++k) pair.turn();
  EXPECT_FALSE(pair.a->is_done(1));
  pair.b->receive(3, kCollective, in, 5);
  ASSERT_TRUE(pair.turn_until([&] { return pair.b->is_done(3); }));
  EXPECT_EQ(in, out);
}

// Shows that a receive may be dropped while it is being filled, its buffer freed at once, and the next message arrives intact.
TEST(SocketLink, ReceiveDroppedWhileItIsFilled) {
  Pair pair;
  const Bytes out = pattern(kLarge, 1), next = pattern(70'001, 2);
  auto in = std::make_unique<Bytes>(kLarge);
  Bytes after(next.size());
  pair.a->send(1, kMessage, out, 5);
  pair.a->send(2, kMessage, next, 5);
  pair.b->receive(1, kMessage, *in, 5);
  pair.b->receive(2, kMessage, after, 5);
  ASSERT_TRUE(pair.turn_until([&] { return (*in)[kLarge / 4] == out[kLarge / 4]; }));
  ASSERT_FALSE(pair.b->is_done(1));
  pair.b->drop(1);
  in.reset();
  ASSERT_TRUE(pair.turn_until([&] { return pair.b->is_done(2); }));
  EXPECT_EQ(after, next);
  EXPECT_TRUE(pair.turn_until([&] { return pair.a->is_done(1); }));  // the sender has handed over all its bytes
}

TEST(SocketLink, SendDroppedInTheMiddleOfAFrame) {
  Pair pair;
  auto out = std::make_unique<Bytes>(pattern(kLarge, 1));
  const Bytes next = pattern(70'001, 2), letter = pattern(10, 3);
  Bytes in(kLarge), after(next.size());
  pair.a->send(1, kMessage, *out, 5);
  pair.a->send(2, kMessage, next, 5);
  pair.b->receive(1, kMessage, in, 5);
  pair.b->receive(2, kMessage, after, 5);
  pair.b->write();
  pair.a->read();
  pair.a->write();  // the link writes until the socket is full, which is in the middle of a frame
  ASSERT_TRUE(pair.a->has_to_write());
  pair.a->drop(1);
  out.reset();
  pair.a->post(letter);
  ASSERT_TRUE(pair.turn_until([&] { return pair.b->is_done(2) && !pair.b->letters().empty(); }));
  EXPECT_EQ(after, next);
  EXPECT_EQ(pair.b->letters().front(), letter);
  EXPECT_FALSE(pair.b->is_done(1));  // the receive of the dropped message never completes
}

TEST(SocketLink, SendDroppedBeforeItsReceiveKeepsItsPlace) {
  Pair pair;
  const Bytes second = pattern(9, 2);
  Bytes in(9), after(9);
  pair.a->send(1, kMessage, pattern(9, 1), 5);
  pair.a->drop(1);
  pair.a->send(2, kMessage, second, 5);
  pair.b->receive(1, kMessage, in, 5);
  pair.b->receive(2, kMessage, after, 5);
  ASSERT_TRUE(pair.turn_until([&] { return pair.b->is_done(2); }));
  EXPECT_EQ(after, second);
  EXPECT_FALSE(pair.b->is_done(1));
}

TEST(SocketLink, EverythingSaidIsReadBeforeTheEnd) {
  Pair pair;
  const Bytes letter = pattern(1000, 1);
  pair.a->post(letter);
  pair.a->write();
  pair.a.reset();
  Bytes out(kLarge);
  pair.b->post(out);  // writing to a closed socket must raise no signal
  ASSERT_TRUE(pair.turn_until([&] { return pair.b->end().has_value(); }));
  ASSERT_EQ(pair.b->letters().size(), 1u);
  EXPECT_EQ(pair.b->letters().front(), letter);
  EXPECT_FALSE(pair.b->said_farewell());
  EXPECT_TRUE(pair.b->all_posted());
}

TEST(SocketLink, FarewellIsAnswered) {
  Pair pair;
  pair.a->say_farewell();
  EXPECT_FALSE(pair.a->is_answered());
  ASSERT_TRUE(pair.turn_until([&] { return pair.a->is_answered(); }));
  pair.a.reset();
  ASSERT_TRUE(pair.turn_until([&] { return pair.b->end().has_value(); }));
  EXPECT_TRUE(pair.b->said_farewell());
}

TEST(SocketLink, WhatIsNoFrameEndsIt) {
  for (const size_t damaged : {size_t{0}, size_t{4}, size_t{8}, size_t{16}, size_t{24}, size_t{28}}) {
    Pair pair(false);
    const Descriptor other(pair.raw);
    SocketFrame frame{.kind = SocketFrame::Kind::ready, .bytes = 8, .ticket = 1, .tag = 5};
    frame.check = frame.expected_check();
    reinterpret_cast<u8*>(&frame)[damaged] ^= 1;
    ASSERT_TRUE(send_all(other, &frame, sizeof frame, deadline_in(1)));
    pair.a->read();
    ASSERT_TRUE(pair.a->end().has_value()) << damaged;
    EXPECT_THAT(*pair.a->end(), HasSubstr("header"));
  }
}

TEST(SocketLink, MoreBytesThanAskedForEndIt) {
  Pair pair(false);
  const Descriptor other(pair.raw);
  Bytes in(8);
  pair.a->receive(7, kMessage, in, 5);
  SocketFrame frame{.kind = SocketFrame::Kind::data, .bytes = 9, .ticket = 7};
  frame.check = frame.expected_check();
  ASSERT_TRUE(send_all(other, &frame, sizeof frame, deadline_in(1)));
  pair.a->read();
  ASSERT_TRUE(pair.a->end().has_value());
  EXPECT_THAT(*pair.a->end(), HasSubstr("no more bytes"));
}

// Shows that half of a message (letter) followed by a close delivers nothing and ends the link.
TEST(SocketLink, HalfALetterIsNone) {
  Pair pair(false);
  const Bytes letter = pattern(1000, 1);
  {
    const Descriptor other(pair.raw);
    SocketFrame frame{.bytes = std::ssize(letter)};
    frame.check = frame.expected_check();
    ASSERT_TRUE(send_all(other, &frame, sizeof frame, deadline_in(1)));
    ASSERT_TRUE(send_all(other, letter.data(), letter.size() / 2, deadline_in(1)));
  }
  pair.a->read();
  EXPECT_TRUE(pair.a->end().has_value());
  EXPECT_TRUE(pair.a->letters().empty());
}

// Sends random frame headers that have valid checks. Each header is accepted or ends the link, and nothing outside the buffers is
// accessed (which ASan checks).
TEST(SocketLink, FuzzedFramesWithGoodChecks) {
  std::mt19937_64 random(1);
  int ended = 0, letters = 0;
  for (int k = 0; k < 2000; ++k) {
    Pair pair(false);
    const Descriptor other(pair.raw);
    Bytes in(300), out(300);
    pair.a->receive(1, kMessage, in, 5);
    pair.a->send(2, kMessage, out, 5);
    for (int n = 0; n < 10; ++n) {
      const auto wild = random() % 16 == 0;
      SocketFrame frame{.kind = static_cast<SocketFrame::Kind>(random() % (wild ? 70'000 : 5)),
                        .channel = static_cast<u16>(random() % 3),
                        .bytes = static_cast<i64>(wild ? random() : random() % 200),
                        .ticket = random() % 4,
                        .tag = static_cast<i32>(random() % 3 + 4)};
      if (frame.kind == SocketFrame::Kind::ready && random() % 2) frame.bytes = 300;
      frame.check = frame.expected_check();
      send_all(other, &frame, sizeof frame, deadline_in(0));
      const bool carries = frame.kind == SocketFrame::Kind::letter || frame.kind == SocketFrame::Kind::data;
      const Bytes bytes(static_cast<size_t>(carries ? std::clamp<i64>(frame.bytes, 0, 1000) : 0));
      send_all(other, bytes.data(), bytes.size(), deadline_in(0));
      if (random() % 8 == 0) pair.a->drop(1 + random() % 2);
      pair.a->read();
      pair.a->write();
    }
    ended += pair.a->end().has_value();
    letters += static_cast<int>(pair.a->letters().size());
  }
  EXPECT_GT(ended, 100);
  EXPECT_GT(letters, 100);
}

}  // namespace
}  // namespace spillway::parallel::socket_link_test
