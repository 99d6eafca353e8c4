// Ranks that meet, as threads of this process: who does not come, comes twice, speaks something else, or belongs to another run.
#include "parallel/sockets/meeting.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "parallel/sockets/attendee.h"
#include "parallel/sockets/meeting_place.h"

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

// Each writes into its own memory and sees the others'.
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

TEST(Meeting, FileLeftByAnotherRunDoesNotMislead) {
  const auto file = std::filesystem::temp_directory_path() / ("spillway-meeting-test-" + std::to_string(getpid()));
  std::ofstream(file) << "a token\n127.0.0.1 " << free_port() << "\n";
  expect_linked(attend_all(ranks(3, "file:" + file.string(), kLong_s, 1)), 1);
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
    EXPECT_THAT(outcome.error, HasSubstr("each rank once, got rank 1"));
  }
}

TEST(Meeting, UnequalSizesAreNamed) {
  auto some = ranks(2, own_name(), kLong_s);
  some[1].size = 3;
  for (const Outcome& outcome : attend_all(some)) {
    EXPECT_EQ(outcome.code, ErrorCode::usage);
    EXPECT_THAT(outcome.error, HasSubstr("ranks 0 to 1 of 2, got rank 1"));
  }
}

// Rank 1 says what another build would.
TEST(Meeting, UnequalBuildsAreNamed) {
  std::string heard;
  std::thread other([&] {
    std::string why;
    const Deadline deadline = deadline_in(kLong_s);
    MeetingPlace::Reached reached;
    while (!reached.socket) reached = MeetingPlace(own_name()).reach("t", deadline, why);
    send_words(reached.socket, Introduction{"1", "abc", "t", 1, 2, {.host = "elsewhere"}}.to_words(), deadline);
    const auto answer = receive_words(reached.socket, deadline, why);
    if (answer && answer->size() == 3) heard = (*answer)[2];
  });
  const Outcome outcome = attend(ranks(2, own_name(), kLong_s)[0]);
  other.join();
  EXPECT_EQ(outcome.code, ErrorCode::usage);
  EXPECT_THAT(outcome.error, HasSubstr("got build abc of rank 1 on host elsewhere"));
  EXPECT_EQ(heard, outcome.error);
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
  EXPECT_THAT(outside.error, HasSubstr("another run meets at"));
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
  EXPECT_THAT(outcome.error, HasSubstr("speaks something else"));
}

TEST(Meeting, PortInUseIsNamed) {
  int error = 0;
  const Descriptor held = try_listen(SocketAddress::resolve("127.0.0.1", 0).front(), error);
  const std::string place = "tcp:127.0.0.1:" + std::to_string(SocketAddress::of_this_end(held).port());
  const Outcome outcome = attend(ranks(2, place, kLong_s)[0]);
  EXPECT_EQ(outcome.code, ErrorCode::usage);
  EXPECT_THAT(outcome.error, HasSubstr("rank 0 to open " + place + ", got \"Address already in use\""));
  // The others find somebody who says nothing.
  const Outcome other = attend(ranks(2, place, kShort_s)[1]);
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
