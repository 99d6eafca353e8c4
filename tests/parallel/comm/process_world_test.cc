// Tests two kinds of faults in a ProcessWorld: the wire throws, or a peer sends messages that no correct
// program would. Calls must fail, destructors must return, and no byte outside the right memory may be read
// or written. The wire is a test double that delivers what the test tells it to.
#include "parallel/comm/process_world.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <random>

#include "base/error.h"
#include "parallel/comm/communicator_process.h"
#include "parallel/comm/process_letter.h"

namespace spillway::parallel::process_world_test {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// Holds state that the test and the world's thread share. The world under test is rank 0 of `size` ranks, which all share memory.
struct Line {
  explicit Line(int size) {
    for (int r = 0; r < size; ++r) memories.emplace_back(static_cast<std::byte*>(std::calloc(1, kBytes)), std::free);
  }
  static inline const auto kBytes = static_cast<size_t>(process_memory_bytes());
  std::mutex mutex;
  std::deque<Wire::Letter> coming;
  std::vector<ProcessLetter> posted;
  std::vector<int> given_up;
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> memories;
  std::atomic<int> throws = 0;  // number of calls in which the wire will still throw
  std::atomic<bool> throws_at_posts = false;

  void write(int from, Bytes letter) {
    const std::lock_guard lock(mutex);
    coming.push_back({from, std::move(letter)});
  }
  void write(int from, const ProcessLetter& letter) { write(from, letter.to_bytes()); }
  // Waits until everything written to the wire has been read.
  void wait_until_read() {
    for (;;) {
      const std::lock_guard lock(mutex);
      if (coming.empty()) return;
    }
  }
};

class LineWire final : public Wire {
 public:
  explicit LineWire(Line& line) : line_(line) {}
  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(line_.memories.size()); }
  std::span<std::byte> memory_of(int rank) override { return {line_.memories[static_cast<size_t>(rank)].get(), Line::kBytes}; }
  Ticket send(Channel, std::span<const std::byte>, int, int) override { return ++tickets_; }
  Ticket receive(Channel, std::span<std::byte>, int, int) override { return ++tickets_; }
  bool is_done(Ticket) override { return false; }
  void drop(Ticket) override {}
  void post(int, std::vector<std::byte> letter) override {
    if (line_.throws_at_posts) throw std::bad_alloc();
    const std::lock_guard lock(line_.mutex);
    line_.posted.push_back(ProcessLetter::of(letter));
  }
  std::optional<Letter> next_letter() override {
    if (line_.throws > 0) {
      --line_.throws;
      throw Error(ErrorCode::io, "[sockets] expected epoll_ctl to succeed");
    }
    const std::lock_guard lock(line_.mutex);
    if (line_.coming.empty()) return std::nullopt;
    Letter letter = std::move(line_.coming.front());
    line_.coming.pop_front();
    return letter;
  }
  bool give_up(int rank) override {
    const std::lock_guard lock(line_.mutex);
    line_.given_up.push_back(rank);
    return true;
  }
  bool all_posted() override { return true; }
  void close() override {}

 private:
  Line& line_;
  Ticket tickets_ = 0;
};

std::unique_ptr<Communicator> open(Line& line, double timeout_s = 60) {
  return make_process_communicator(std::make_unique<LineWire>(line), timeout_s);
}

std::string error_of(const Event& event) {
  try {
    event.wait();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::peer);
    return e.what();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "none";
}

TEST(ProcessWorld, WhatIsThrownEndsEverythingAndTheProcessGoesOn) {
  for (const int times : {1, 1'000'000'000}) {
    Line line(2);
    auto all = open(line);
    Bytes in(8);
    const Event collective = all->barrier(), message = all->receive(in, 1, 0);
    line.throws = times;
    for (const Event& event : {collective, message, all->barrier(), all->send(in, 1, 0), all->receive(in, 1, 1)})
      EXPECT_THAT(error_of(event), HasSubstr("this rank's communicator failed: [sockets] expected epoll_ctl"));
    EXPECT_THROW(all->split(0), Error);
    all->abort("more");
    if (times == 1) {
      EXPECT_EQ(line.posted.back().kind, ProcessLetter::Kind::broken);
      EXPECT_THAT(line.posted.back().text, HasSubstr("epoll_ctl"));
    }
    all.reset();  // the destructor of the world must return
  }
}

TEST(ProcessWorld, AGroupThatWasSplitOffEndsToo) {
  Line line(2);
  auto all = open(line);
  const ComingCall call{.call = {.what = Collective::split}, .next_group = 1, .area = ProcessWorld::kAreaBytes};
  line.write(1, {.kind = ProcessLetter::Kind::came, .words = call.to_words()});
  auto part = all->split(0);
  const Event event = part->barrier();
  line.throws = 1;
  EXPECT_THAT(error_of(event), HasSubstr("communicator failed"));
  EXPECT_THAT(error_of(part->barrier()), HasSubstr("communicator failed"));
  part.reset(), all.reset();
}

TEST(ProcessWorld, ACommandThatThrowsFailsItsEvent) {
  Line line(2);
  auto all = open(line);
  line.throws_at_posts = true;
  EXPECT_THAT(error_of(all->barrier()), HasSubstr("bad_alloc"));
  EXPECT_THAT(error_of(all->barrier()), HasSubstr("bad_alloc"));
}

// Sends invalid messages, possibly after valid ones. Expects that their sender is cut off,
// and that whoever waits for the sender gets an error with the reason `why`.
void expect_refused(const std::vector<ProcessLetter>& letters, const std::string& why, int from = 1) {
  Line line(3);
  auto all = open(line);
  Bytes bytes(8);
  const Event sent = all->send(bytes, 2, 5), event = all->receive(bytes, from, 5);
  for (const ProcessLetter& letter : letters) line.write(from, letter);
  EXPECT_THAT(error_of(event), HasSubstr(why));
  EXPECT_EQ(line.given_up, std::vector{from});
  line.throws = 1;  // the call that throws is the one in which this rank would announce that it leaves
}

ProcessLetter split_letter(i64 number, i64 next_group, i64 area) {
  const ComingCall call{.call = {.what = Collective::split}, .next_group = next_group, .area = area};
  return {.kind = ProcessLetter::Kind::came, .a = number, .words = call.to_words()};
}

TEST(ProcessWorld, LettersThatCannotBeCutTheirWriterOff) {
  constexpr i64 kArea = ProcessWorld::kAreaBytes, kHuge = std::numeric_limits<i64>::max();
  for (const i64 next : {kHuge, i64{1} << 62}) expect_refused({split_letter(0, next, kArea)}, "invalid group number");
  for (const i64 area : {i64{0}, kArea + 1, 16 * kArea, kHuge / kArea * kArea, kHuge})
    expect_refused({split_letter(0, 1, area)}, "outside of the shared memory");
  expect_refused({split_letter(1, 1, kArea)}, "out of order");
  expect_refused({split_letter(0, 1, kArea), split_letter(0, 1, kArea)}, "out of order");
  expect_refused({{.kind = ProcessLetter::Kind::offers, .a = i64{1} << 32}}, "invalid tag or size");
  expect_refused({{.kind = ProcessLetter::Kind::offers, .b = -1}}, "invalid tag or size");
  expect_refused({{.kind = ProcessLetter::Kind::takes, .a = 0, .b = 8}}, "meant for another rank");
  expect_refused({{.kind = ProcessLetter::Kind::came, .words = {1, 2, 3}}}, "expected a valid message");
}

TEST(ProcessWorld, LettersForGroupsThatAreNotMadeAreOnlyAFew) {
  const ProcessLetter large{.group = 7, .text = std::string(8 << 20, 'x')};
  std::vector<ProcessLetter> letters(9, large);
  for (ProcessLetter& one : letters) one.kind = ProcessLetter::Kind::left;
  expect_refused(letters, "64 MiB");
}

// Shows that messages for a group that arrive before this rank has made the group are delivered once, when the group is made.
TEST(ProcessWorld, LettersThatComeEarlyAreHeardOnce) {
  Line line(2);
  auto all = open(line);
  constexpr i64 kArea = ProcessWorld::kAreaBytes;
  const ComingCall barrier{.call = {.what = Collective::barrier}, .next_group = 3, .area = -1};
  for (i64 group : {1, 2}) line.write(1, {.kind = ProcessLetter::Kind::came, .group = group, .words = barrier.to_words()});
  for (i64 k : {0, 1}) line.write(1, split_letter(k, k + 1, (k + 1) * kArea));
  const auto first = all->split(0), second = all->split(0);
  first->barrier().wait();
  second->barrier().wait();
  for (i64 group : {0, 1, 2}) line.write(1, {.kind = ProcessLetter::Kind::left, .group = group});
}

// Sends random messages, most of them nearly valid, to a world in use. All of its calls must end, and the world must shut down.
TEST(ProcessWorld, FuzzedLettersIntoAWorldAtWork) {
  std::mt19937_64 random(1);
  const auto any = [&]() -> i64 {
    switch (random() % 5) {
      case 0:
        return static_cast<i64>(random());
      case 1:
        return std::numeric_limits<i64>::max() - static_cast<i64>(random() % 2);
      default:
        return static_cast<i64>(random() % 4);
    }
  };
  for (int k = 0; k < 100; ++k) {
    Line line(3);
    auto all = open(line, 0.02);
    Bytes bytes(64);
    const std::vector<Event> events = {all->send(bytes, 1, 1), all->receive(bytes, 2, 2),
                                       all->all_reduce(bytes, DType::f32, Reduction::sum), all->barrier()};
    for (int n = 0; n < 30; ++n) {
      ProcessLetter letter{.kind = static_cast<ProcessLetter::Kind>(random() % 6), .group = any() % 3, .a = any(), .b = any(), .c = any()};
      ComingCall call{.call = {.what = static_cast<Collective>(random() % 6), .dtype = DType::f32}, .next_group = any(), .area = any()};
      if (random() % 2) call.call.gets = {static_cast<std::byte*>(nullptr), 64}, call.area = -1, call.next_group = 1;
      if (call.next_group < 0) call.next_group = 1;
      letter.words = call.to_words();
      if (letter.kind == ProcessLetter::Kind::came && random() % 2) letter.group = 0, letter.a = static_cast<i64>(n / 3);
      Bytes raw = letter.to_bytes();
      if (random() % 8 == 0) raw[random() % raw.size()] ^= static_cast<std::byte>(1 << random() % 8);
      if (random() % 16 == 0) raw.resize(random() % raw.size());
      line.write(1 + static_cast<int>(random() % 2), std::move(raw));
    }
    for (const Event& event : events) {
      try {
        event.wait();
      } catch (const Error&) {
      }
    }
    for (int r : {1, 2}) line.write(r, {.kind = ProcessLetter::Kind::left});
    line.wait_until_read();
    line.throws = 1;  // the wire throws in its next call; the destructor need not wait for groups that do not exist
  }
}

}  // namespace
}  // namespace spillway::parallel::process_world_test
