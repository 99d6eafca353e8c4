// Tests Reception, which accepts connections at a rank's listening sockets and reads greetings. The tests face it with
// crowds of strangers, silence, random bytes, other users' processes and a lack of file descriptors.
#include "parallel/sockets/greeting.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <random>

namespace spillway::parallel::greeting_test {
namespace {

using testing::HasSubstr;

struct Door {
  int error = 0;
  Descriptor listener = try_listen(SocketAddress::abstract(""), error);
  SocketAddress address = SocketAddress::of_this_end(listener);

  Descriptor connect() const {
    std::string why;
    Descriptor made = try_connect(address, deadline_in(5), why);
    EXPECT_TRUE(made) << why;
    return made;
  }
  std::vector<Descriptor> crowd(int count) const {
    std::vector<Descriptor> all;
    for (int k = 0; k < count; ++k) all.push_back(connect());
    return all;
  }
  Descriptor guest() const {
    Descriptor made = connect();
    send_words(made, {"me"}, deadline_in(5));
    return made;
  }
};

std::vector<Descriptor> listeners(Door& a) {
  std::vector<Descriptor> all;
  all.push_back(std::move(a.listener));
  return all;
}

double seconds_since(Deadline begin) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); }

TEST(Reception, ACrowdAtOneDoorDoesNotShutTheOther) {
  Door crowded, quiet;
  const auto strangers = crowded.crowd(200);
  const Descriptor guest = quiet.guest();
  std::vector<Descriptor> both = listeners(crowded);
  both.push_back(std::move(quiet.listener));
  Reception reception(std::move(both), 20);
  ASSERT_TRUE(reception.next(deadline_in(5)));
  EXPECT_EQ(reception.strangers(), "") << "nobody had to give way yet";
}

TEST(Reception, WhoHasBegunGivesWayLast) {
  Door door;
  const Descriptor guest = door.guest();
  Reception reception(listeners(door), 8);
  auto visitor = reception.next(deadline_in(5));
  ASSERT_TRUE(visitor);
  reception.come_again(std::move(visitor->socket), "half way");
  const auto strangers = door.crowd(100);
  EXPECT_FALSE(reception.next(deadline_in(0.2)));
  send_words(guest, {"and more"}, deadline_in(5));
  visitor = reception.next(deadline_in(5));
  ASSERT_TRUE(visitor);
  EXPECT_EQ(visitor->memo, "half way");
  EXPECT_THAT(reception.strangers(), HasSubstr("; and 90 more"));
}

// Shows that Reception, while its limit of connections is reached, accepts no more and does not poll either.
TEST(Reception, ACrowdWaitsOutside) {
  Door door;
  const auto strangers = door.crowd(15);
  const Descriptor guest = door.guest();
  Reception reception(listeners(door), 100, 10);
  const Deadline begin = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  ASSERT_TRUE(reception.next(deadline_in(10)));
  EXPECT_GT(seconds_since(begin), 0.9);
  EXPECT_LT(seconds_since(begin), 5);
  EXPECT_LT(std::clock() - cpu, CLOCKS_PER_SEC / 2);
}

TEST(Reception, WhoAwaitsAnAnswerHearsThatThereIsNone) {
  Door door, other;
  Reception reception(listeners(door), 8);
  reception.await(other.connect(), "1");
  EXPECT_FALSE(reception.next(deadline_in(0.1)));
  accept_from(other.listener);  // the other end accepts the connection and closes it
  const auto visitor = reception.next(deadline_in(5));
  ASSERT_TRUE(visitor);
  EXPECT_EQ(visitor->memo, "1");
  EXPECT_TRUE(visitor->words.empty());
}

// Lowers the limit of file descriptors, and restores it on destruction.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{static_cast<rlim_t>(dup(0) + more), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(Reception, WithoutDescriptorsSomebodyGivesWay) {
  Door door;
  const auto strangers = door.crowd(40);
  const Descriptor guest = door.guest();
  Reception reception(listeners(door), 1000);
  const FewDescriptors few(8);
  EXPECT_TRUE(reception.next(deadline_in(5)));
}

TEST(Reception, WithoutAnyDescriptorItSleeps) {
  Door door;
  const auto strangers = door.crowd(4);
  Reception reception(listeners(door), 1000);
  const FewDescriptors none(0);
  const std::clock_t cpu = std::clock();
  EXPECT_FALSE(reception.next(deadline_in(0.5)));
  EXPECT_LT(std::clock() - cpu, CLOCKS_PER_SEC / 5);
}

// Shows that a process of another user counts as a stranger, whatever it claims: the kernel tells which user owns the process at the
// other end.
TEST(Reception, AnotherUsersProcessIsAStranger) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  Door door;
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    const Descriptor guest = door.guest();
    std::string why;
    _exit(receive_words(guest, deadline_in(10), why) || why != "closed the connection" ? 1 : 0);
  }
  Reception reception(listeners(door), 10);
  EXPECT_FALSE(reception.next(deadline_in(0.5)));
  EXPECT_THAT(reception.strangers(), HasSubstr("belongs to another user"));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// Sends frames of random words, with flipped bits, truncated or in pieces, half of them followed by a close. Each frame must be parsed as
// words or count as a stranger's. A genuine guest that arrives among them must be answered.
TEST(Reception, FuzzedBytesAreWordsOrAStrangers) {
  std::mt19937 random(1);
  Door door;
  Reception reception(listeners(door), 64);
  for (int round = 0; round < 100; ++round) {
    std::vector<Descriptor> held;
    for (int k = 0; k < 40; ++k) {
      std::string bytes = "SPILLWAY";
      const u32 count = static_cast<u32>(random() % 8 ? random() % 64 : random());
      bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
      while (bytes.size() < 12 + std::min(count, 5000u)) bytes += static_cast<char>(random() % 4 ? 'a' + random() % 26 : '\n');
      for (auto flips = random() % 3; flips > 0; --flips) bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
      bytes.resize(random() % 3 ? bytes.size() : random() % bytes.size());
      Descriptor one = door.connect();
      send_all(one, bytes.data(), bytes.size(), deadline_in(1));
      if (random() % 2) held.push_back(std::move(one));
    }
    const Descriptor guest = door.guest();
    for (bool heard = false; !heard;) {
      const auto visitor = reception.next(deadline_in(5));
      ASSERT_TRUE(visitor);
      heard = visitor->words == Words{"me"};
    }
  }
}

}  // namespace
}  // namespace spillway::parallel::greeting_test
