// Tests the rendezvous of ranks, which are threads of this process. A rank may not
// arrive, arrive twice, speak another protocol, or belong to another run.
#include "parallel/sockets/meeting.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "parallel/sockets/attendee.h"
#include "parallel/sockets/meeting_place.h"
#include "parallel/sockets/secret.h"
#include "tests/support/temporary_folder.h"

namespace spillway::parallel::meeting_test {
namespace {

using testing::HasSubstr;

constexpr i64 kBytes = 8192;
constexpr double kShort_s = 0.3, kLong_s = 60;

std::string own_name() { return "unix:spillway-meeting-test-" + std::to_string(getpid()); }

int free_port() {
  int error = 0;
  return SocketAddress::of_this_end(try_listen(SocketAddress::any(AF_INET, 0), error)).port();
}

struct Outcome {
  std::vector<Neighbour> neighbours;
  ErrorCode code = ErrorCode::bug;
  std::string error;
};

Outcome attend(const SocketOptions& options) {
  Outcome outcome;
  try {
    outcome.neighbours = meet(options, kBytes);
  } catch (const Error& error) {
    outcome.code = error.code(), outcome.error = error.what();
  }
  return outcome;
}

std::vector<Outcome> attend_all(const std::vector<SocketOptions>& ranks) {
  std::vector<Outcome> outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (size_t k = 0; k < ranks.size(); ++k) threads.emplace_back([&, k] { outcomes[k] = attend(ranks[k]); });
  for (std::thread& one : threads) one.join();
  return outcomes;
}

std::vector<SocketOptions> ranks(int size, const std::string& place, double meeting_s, int ranks_per_node = 0) {
  std::vector<SocketOptions> all;
  for (int r = 0; r < size; ++r)
    all.push_back({.rank = r, .size = size, .place = place, .token = "t", .meeting_s = meeting_s, .ranks_per_node = ranks_per_node});
  return all;
}

// Checks that all ranks are connected: each writes into its own shared memory and reads what the others wrote.
void expect_linked(const std::vector<Outcome>& outcomes, int ranks_per_node) {
  const int size = static_cast<int>(outcomes.size());
  for (int r = 0; r < size; ++r) {
    const Outcome& mine = outcomes[static_cast<size_t>(r)];
    ASSERT_EQ(mine.error, "");
    ASSERT_EQ(std::ssize(mine.neighbours), size);
    mine.neighbours[static_cast<size_t>(r)].memory.bytes()[1] = static_cast<std::byte>(r + 1);
  }
  for (int r = 0; r < size; ++r) {
    for (int other = 0; other < size; ++other) {
      const Neighbour& seen = outcomes[static_cast<size_t>(r)].neighbours[static_cast<size_t>(other)];
      EXPECT_EQ(static_cast<bool>(seen.socket), r != other);
      const bool near = ranks_per_node == 0 || r / ranks_per_node == other / ranks_per_node;
      ASSERT_EQ(!seen.memory.bytes().empty(), near) << r << " and " << other;
      if (near) {
        EXPECT_EQ(seen.memory.bytes()[1], static_cast<std::byte>(other + 1));
      }
      EXPECT_TRUE(r == other || (SocketAddress::of_this_end(seen.socket).family() == AF_UNIX) == near);
    }
  }
}

TEST(Meeting, AllAreLinkedWithAll) {
  expect_linked(attend_all(ranks(5, own_name(), kLong_s)), 0);
  expect_linked(attend_all(ranks(5, "tcp:127.0.0.1:" + std::to_string(free_port()), kLong_s, 2)), 2);
  expect_linked(attend_all(ranks(1, own_name(), kLong_s)), 0);
}

// Shows that an old rendezvous file does not mislead ranks, even if its port now belongs to a program that accepts and says nothing.
TEST(Meeting, FileLeftByAnotherRunDoesNotMislead) {
  const test::TemporaryFolder folder;
  const auto file = folder / "meeting";
  int error = 0;
  const Descriptor silent = try_listen(SocketAddress::resolve("127.0.0.1", 0).front(), error);
  std::ofstream(file) << "a token\n127.0.0.1 " << SocketAddress::of_this_end(silent).port() << "\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  auto all = ranks(3, "file:" + file.string(), 5, 1);
  std::vector<Outcome> outcomes(3);
  std::vector<std::thread> guests;
  for (size_t r : {1, 2}) {
    all[r].first_answer_s = 0.2;
    guests.emplace_back([&, r] { outcomes[r] = attend(all[r]); });
  }
  std::vector<Descriptor> held;
  while (held.size() < 2) {
    if (Descriptor one = accept_from(silent)) held.push_back(std::move(one));
  }
  outcomes[0] = attend(all[0]);
  for (std::thread& one : guests) one.join();
  expect_linked(outcomes, 1);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Meeting, WhoDoesNotComeIsNamedOnAllWhoCame) {
  auto some = ranks(4, own_name(), kShort_s);
  some.erase(some.begin() + 2);
  for (const Outcome& outcome : attend_all(some)) {
    EXPECT_EQ(outcome.code, ErrorCode::peer);
    EXPECT_THAT(outcome.error, HasSubstr("got no rank 2 within 300 ms"));
  }
  some.erase(some.begin());
  for (const Outcome& outcome : attend_all(some)) {
    EXPECT_EQ(outcome.code, ErrorCode::peer);
    EXPECT_THAT(outcome.error, HasSubstr("expected rank 0 at " + own_name()));
  }
}

TEST(Meeting, TwoOfOneRankAreNamed) {
  auto some = ranks(3, own_name(), kLong_s);
  some[2].rank = 1;
  for (const Outcome& outcome : attend_all(some)) {
    EXPECT_EQ(outcome.code, ErrorCode::usage);
    EXPECT_THAT(outcome.error, HasSubstr("got rank 1"));
  }
}

TEST(Meeting, UnequalSizesAreNamed) {
  auto some = ranks(2, own_name(), kLong_s);
  some[1].size = 3;
  for (const Outcome& outcome : attend_all(some)) {
    EXPECT_EQ(outcome.code, ErrorCode::usage);
    EXPECT_THAT(outcome.error, HasSubstr("ranks 0 to 1 of a run of 2 ranks, got rank 1"));
  }
}

// Plays the guest's side of the handshake, step by step, so that a test can stop, or send false data, at any point.
struct Caller {
  Descriptor socket;
  Secret secret;
  Words nonces = {random_bits(), ""};
  const Deadline deadline = deadline_in(kLong_s);

  explicit Caller(const std::string& token, const std::string& place = own_name()) : secret(token) {
    std::string why;
    while (!socket) socket = MeetingPlace(place).reach(token, deadline, why).socket;
  }
  Words hear() {
    std::string why;
    return receive_words(socket, deadline, why, kMostWordsBytes).value_or(Words());
  }
  // Sends the first greeting. Returns true if the host proved that it knows the token.
  bool greet() {
    send_words(socket, {"hello", "3", nonces[0]}, deadline);
    const Words host = hear();
    if (host.size() != 2) return false;
    nonces[1] = host[0];
    return secret.proves(host[1], {"host", nonces[0], nonces[1], host[0]});
  }
  void say(Words words) {
    Words said = words;
    said.insert(said.begin(), {"guest", nonces[0], nonces[1]});
    words.push_back(secret.proof_of(said));
    send_words(socket, words, deadline);
  }
};

// Shows that the error names both builds if rank 1 introduces itself with another build's identity.
TEST(Meeting, UnequalBuildsAreNamed) {
  Words heard;
  std::thread other([&] {
    Caller caller("t");
    EXPECT_TRUE(caller.greet());
    caller.say(Introduction{"abc", 1, 2, {.host = "elsewhere"}}.to_words());
    heard = caller.hear();
  });
  const Outcome outcome = attend(ranks(2, own_name(), kLong_s)[0]);
  other.join();
  EXPECT_EQ(outcome.code, ErrorCode::usage);
  EXPECT_THAT(outcome.error, HasSubstr("got build abc of rank 1 on host elsewhere"));
  ASSERT_EQ(heard.size(), 4u);
  EXPECT_EQ(heard[2], outcome.error);
}

// Shows that a stranger without the token learns nothing about the run, even if all other messages that it sends are correct. A proof of
// the token that was overheard is worthless in the next handshake.
TEST(Meeting, AStrangerLearnsNothingAndIsNobody) {
  const std::string place = "tcp:127.0.0.1:" + std::to_string(free_port());
  const auto all = ranks(2, place, kLong_s);
  std::thread strangers([&] {
    Caller other("of another run", place);
    EXPECT_FALSE(other.greet());
    other.say(Introduction{"abc", 1, 2, {.host = "elsewhere"}}.to_words());
    EXPECT_TRUE(other.hear().empty()) << "the connection is closed without a word, of the build neither";

    Caller replayed("t", place), replaying("t", place);
    EXPECT_TRUE(replayed.greet());
    EXPECT_TRUE(replaying.greet());
    Words said = Introduction{"abc", 1, 2, {.host = "elsewhere"}}.to_words();
    Words proof = said;
    proof.insert(proof.begin(), {"guest", replayed.nonces[0], replayed.nonces[1]});
    said.push_back(replayed.secret.proof_of(proof));
    send_words(replaying.socket, said, replaying.deadline);
    EXPECT_TRUE(replaying.hear().empty());

    Caller large("t", place);
    send_words(large.socket, {"hello", "3", std::string(10'000, 'x')}, large.deadline);
    EXPECT_TRUE(large.hear().empty());
    EXPECT_EQ(attend(all[1]).error, "");
  });
  EXPECT_EQ(attend(all[0]).error, "");
  strangers.join();
}

// Shows that ranks meet although more strangers than rank 0 keeps connections for arrive before rank 1, some silent and some half way
// through the handshake.
TEST(Meeting, CrowdsOfStrangersDoNotKeepTheRanksApart) {
  const std::string place = "tcp:127.0.0.1:" + std::to_string(free_port());
  const auto all = ranks(2, place, kLong_s);
  std::thread crowd([&] {
    std::vector<std::unique_ptr<Caller>> callers;
    for (int k = 0; k < 400; ++k) {
      callers.push_back(std::make_unique<Caller>("guessed", place));
      if (k % 3 == 0) send_words(callers.back()->socket, {"hello", "3", random_bits()}, deadline_in(1));
      if (k % 3 == 1) send_all(callers.back()->socket, "SPILLWAY\x08", 9, deadline_in(1));
    }
    EXPECT_EQ(attend(all[1]).error, "");
  });
  EXPECT_EQ(attend(all[0]).error, "");
  crowd.join();
}

// Shows that even a host that knows the token cannot make a guest accept a roster with another number of ranks than the run has.
TEST(Meeting, RostersThatAreNotTheRunsAreRefused) {
  for (const int named : {0, 1, 3, 1000}) {
    int error = 0;
    const Descriptor listener = try_listen(SocketAddress::abstract(own_name().substr(5)), error);
    ASSERT_TRUE(listener);
    std::thread host([&] {
      Reception reception(
          [&] {
            std::vector<Descriptor> one;
            one.emplace_back(dup(listener.get()));
            return one;
          }(),
          10);
      auto guest = reception.next(deadline_in(kLong_s));
      ASSERT_TRUE(guest);
      const Secret secret("t");
      const std::string of_guest = guest->words[2], of_host = random_bits();
      send_words(guest->socket, {of_host, secret.proof_of({"host", of_guest, of_host, of_host})}, deadline_in(kLong_s));
      std::string why;
      ASSERT_TRUE(receive_words(guest->socket, deadline_in(kLong_s), why));
      Words roster = Roster{"s", std::vector<Attendee>(static_cast<size_t>(named))}.to_words(), proof = roster;
      proof.insert(proof.begin(), {"answer", of_guest, of_host});
      roster.push_back(secret.proof_of(proof));
      send_words(guest->socket, roster, deadline_in(kLong_s));
    });
    const Outcome outcome = attend(ranks(2, own_name(), 3)[1]);
    host.join();
    EXPECT_EQ(outcome.code, ErrorCode::peer);
    EXPECT_THAT(outcome.error, HasSubstr("the 2 ranks of this run")) << named;
  }
}

// Sends random bytes, whole frames of random words, and valid words with one bit flipped. Each is
// handled as a stranger or refused with a known error, and never causes a fault.
TEST(Meeting, FuzzedGreetingsRostersAndIntroductions) {
  std::mt19937 random(1);
  const Words good =
      Roster{"session", {{.host = "a", .node = "n", .near_name = "x", .far_host = "h", .far_port = 7}, {.host = "b", .far_port = 9}}}
          .to_words();
  ASSERT_TRUE(Roster::of(good, 2));
  int taken = 0;
  for (int k = 0; k < 20'000; ++k) {
    Words words = good;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0 && !words.empty(); --changes) {
      const size_t at = random() % words.size();
      switch (random() % 4) {
        case 0:
          words.erase(words.begin() + static_cast<i64>(at));
          break;
        case 1:
          words.insert(words.begin() + static_cast<i64>(at), std::string(random() % 40, static_cast<char>(random())));
          break;
        case 2:
          words[at] = std::to_string(static_cast<i64>(random()) * (random() % 2 ? 1 : -1'000'000));
          break;
        default:
          if (!words[at].empty()) words[at][random() % words[at].size()] ^= static_cast<char>(1 << random() % 8);
      }
    }
    const int size = static_cast<int>(random() % 5) - 1;
    if (const auto roster = Roster::of(words, size)) {
      ++taken;
      ASSERT_EQ(std::ssize(roster->all), size);
      for (const Attendee& one : roster->all) ASSERT_TRUE(one.far_port >= 0 && one.far_port <= 65535);
    }
    Introduction::of(words);
  }
  EXPECT_GT(taken, 100);

  int ends[2];
  for (int k = 0; k < 2000; ++k) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    const Descriptor from(ends[0]), to(ends[1]);
    std::string bytes = "SPILLWAY";
    const u32 count = static_cast<u32>(random() % 64);
    bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
    while (bytes.size() < 12 + count) bytes += static_cast<char>(random() % 3 ? 'a' + random() % 26 : '\n');
    for (int flips = static_cast<int>(random() % 3); flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    bytes.resize(bytes.size() - random() % 3);
    send_all(from, bytes.data(), bytes.size(), deadline_in(1));
    ::shutdown(from.get(), SHUT_WR);
    std::string why;
    const auto words = receive_words(to, deadline_in(1), why);
    EXPECT_TRUE(words || !why.empty());
  }
}

TEST(Meeting, OtherRunsAndStrangersStayOutside) {
  auto all = ranks(2, own_name(), kLong_s);
  auto other = ranks(2, own_name(), kShort_s)[1];
  other.token = "of another run";
  Outcome outside;
  std::thread late([&] {
    std::string why;
    MeetingPlace::Reached silent, talking;
    while (!talking.socket) talking = MeetingPlace(own_name()).reach("", deadline_in(kLong_s), why);
    send_all(talking.socket, "GET / HTTP/1.1\r\n\r\n", 18, deadline_in(1));
    silent = MeetingPlace(own_name()).reach("", deadline_in(kLong_s), why);
    outside = attend(other);
    all.resize(2);
    EXPECT_EQ(attend(all[1]).error, "");
  });
  const Outcome inside = attend(all[0]);
  late.join();
  EXPECT_EQ(inside.error, "");
  EXPECT_EQ(outside.code, ErrorCode::peer);
  EXPECT_THAT(outside.error, HasSubstr("another run"));
}

TEST(Meeting, StrangersAreNamedWhenSomebodyIsMissing) {
  const int port = free_port();
  std::thread stranger([&] {
    std::string why;
    const auto address = SocketAddress::resolve("127.0.0.1", port).front();
    Descriptor socket;
    while (!socket) socket = try_connect(address, deadline_in(kLong_s), why);
    send_all(socket, "GET / HTTP/1.1\r\n\r\n", 18, deadline_in(1));
    receive_words(socket, deadline_in(kLong_s), why);
  });
  const Outcome outcome = attend(ranks(2, "tcp:127.0.0.1:" + std::to_string(port), 1)[0]);
  stranger.join();
  EXPECT_THAT(outcome.error, HasSubstr("got no rank 1"));
  EXPECT_THAT(outcome.error, HasSubstr("127.0.0.1:"));
  EXPECT_THAT(outcome.error, HasSubstr("another protocol"));
}

// Returns a free port below the range that the system assigns to outgoing connections. The crowds of strangers use many ports of that
// range..
int quiet_port(int number) {
  int error = 0;
  for (int port = 20000 + (getpid() + 16 * number) % 10000, last = port + 1000; port < last; ++port) {
    if (try_listen(SocketAddress::any(AF_INET, port), error)) return port;
  }
  throw std::runtime_error("no port is free");
}

// Returns the addresses at which this process listens: rank 0's rendezvous address and every rank's own sockets.
std::vector<SocketAddress> own_doors(const SocketAddress& localhost) {
  std::vector<SocketAddress> doors;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const Descriptor one(fcntl(std::stoi(entry.path().filename()), F_DUPFD_CLOEXEC, 3));
    int listens = 0;
    socklen_t bytes = sizeof listens;
    if (!one || getsockopt(one.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens) continue;
    const SocketAddress door = SocketAddress::of_this_end(one);
    doors.push_back(door.family() == AF_UNIX ? door : localhost.with_port(door.port()));
  }
  return doors;
}

// Behaves like a stranger in one of several ways: silence, noise, half a frame, an
// oversized frame, or a greeting or link request without a proof.
void be_strange(const Descriptor& one, std::mt19937& random) {
  const auto soon = [] { return deadline_in(0.1); };
  const std::vector<std::string> noise = {"", "GET / HTTP/1.1\r\n\r\n", "SPILLWAY\x40", "SPILLWAY\xff\xff\xff\xff"};
  const size_t kind = random() % (noise.size() + 2);
  if (kind < noise.size()) send_all(one, noise[kind].data(), noise[kind].size(), soon());
  if (kind == noise.size()) send_words(one, {"hello", "3", random_bits()}, soon());
  if (kind > noise.size()) send_words(one, {"link", std::to_string(random() % 5), std::string(64, '0')}, soon());
}

// Connects to every listening socket of this process, again and again, until `over` is set.
void crowd(std::atomic<int>& strangers, const std::atomic<bool>& over) {
  std::mt19937 random(1);
  std::deque<Descriptor> held;  // a few connections stay open and send nothing more
  const SocketAddress localhost = SocketAddress::resolve("127.0.0.1", 1).front();
  while (!over) {
    bool look = false;
    for (const std::vector<SocketAddress> doors = own_doors(localhost); !look && !over;) {
      look = doors.empty();
      for (const SocketAddress& door : doors) {
        std::string why;
        Descriptor one = try_connect(door, deadline_in(0.1), why);
        look |= why.find("refused") != std::string::npos;
        if (!one) continue;
        ++strangers;
        be_strange(one, random);
        held.push_back(std::move(one));
        if (held.size() > 100) held.pop_front();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

// Lets strangers crowd every listening socket while ranks meet through TCP, again and again. The last rank arrives only after 500
// strangers have. Ranks must meet each time.
TEST(SoakMeeting, TenThousandStrangersAtEveryDoor) {
  constexpr int kMeetings = 20, kStrangers = 500;
  std::atomic<int> strangers = 0;
  std::atomic<bool> over = false;
  std::thread them([&] { crowd(strangers, over); });
  for (int k = 0; k < kMeetings && !HasFailure(); ++k) {
    const auto all = ranks(4, "tcp:127.0.0.1:" + std::to_string(quiet_port(k)), kLong_s, k % 2 + 1);
    const int enough = strangers + kStrangers;
    std::vector<Outcome> outcomes(4);
    std::vector<std::thread> threads;
    for (size_t r = 0; r < 4; ++r) {
      while (r == 3 && strangers < enough) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      threads.emplace_back([&, r] { outcomes[r] = attend(all[r]); });
    }
    for (std::thread& one : threads) one.join();
    expect_linked(outcomes, k % 2 + 1);
  }
  over = true;
  them.join();
  EXPECT_GE(strangers, kMeetings * kStrangers);
}

TEST(Meeting, PortInUseIsNamed) {
  int error = 0;
  const Descriptor held = try_listen(SocketAddress::resolve("127.0.0.1", 0).front(), error);
  const std::string place = "tcp:127.0.0.1:" + std::to_string(SocketAddress::of_this_end(held).port());
  const Outcome outcome = attend(ranks(2, place, kLong_s)[0]);
  EXPECT_EQ(outcome.code, ErrorCode::usage);
  EXPECT_THAT(outcome.error, HasSubstr("rank 0 to open " + place + ", got \"Address already in use\""));
  // The other ranks reach a different program, which now holds the port. That program does not answer, and the ranks must report this.
  auto guest = ranks(2, place, kShort_s)[1];
  guest.first_answer_s = 0.1;
  const Outcome other = attend(guest);
  EXPECT_EQ(other.code, ErrorCode::peer);
  EXPECT_THAT(other.error, HasSubstr("does not answer"));
}

TEST(Meeting, PlacesThatAreNone) {
  for (const std::string place :
       {"", "tcp", "tcp:", "tcp:host", "tcp::80", "tcp:host:0", "tcp:host:65536", "tcp:host:8o", "file:", "ftp:x"}) {
    try {
      MeetingPlace made(place);
      ADD_FAILURE() << place;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_THAT(error.what(), HasSubstr("got \"" + place + "\""));
    }
  }
}

}  // namespace
}  // namespace spillway::parallel::meeting_test
