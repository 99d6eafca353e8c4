// Tests how ranks wait for each other outside of steps: the wait does not time out while the awaited rank reports that it is busy by
// itself.
#include "trainer/ranks/peers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>

#include "parallel/comm/communicator_local.h"

namespace spillway::trainer::peers_test {
namespace {

constexpr double kTimeout_s = 0.5;

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Runs `body` on two ranks. `body` itself delays the second rank. Returns whether both ranks finish without a time-out.
bool both_end(const std::function<void(const Peers&)>& body) {
  auto ends = parallel::make_local_communicators(2, {.timeout_s = kTimeout_s});
  std::vector<std::thread> threads;
  std::vector<int> ended(ends.size());
  for (size_t r = 0; r < ends.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(Peers(std::move(ends[r]), "here"));
        ended[r] = 1;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::peer) << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ended == std::vector<int>{1, 1};
}

TEST(Peers, WaitForWhatOneDoesAlone) {
  EXPECT_TRUE(both_end([](const Peers& peers) {
    peers.together([&] {
      if (!peers.first()) sleep(3 * kTimeout_s);
    });
  }));
}

TEST(Peers, DoNotWaitForWhoDoesNotSaySo) {
  EXPECT_FALSE(both_end([](const Peers& peers) {
    if (!peers.first()) sleep(3 * kTimeout_s);
    peers.most({0});
  }));
}

// A rank inside together() counts as busy until it takes part in a collective. If it hangs after that, the other ranks time out.
TEST(Peers, DoNotWaitForWhoHangsBetweenMeetings) {
  EXPECT_FALSE(both_end([](const Peers& peers) {
    peers.together([&] {
      peers.most({0});
      if (!peers.first()) sleep(3 * kTimeout_s);
    });
  }));
}

TEST(Peers, AddUpAndTakeTheLargest) {
  EXPECT_TRUE(both_end([](const Peers& peers) {
    const i64 mine = peers.first() ? -3 : i64{1} << 40;
    EXPECT_EQ(peers.sum({1, mine, 0}), (std::vector<i64>{2, (i64{1} << 40) - 3, 0}));
    EXPECT_EQ(peers.most({1, mine, 0}), (std::vector<i64>{1, i64{1} << 40, 0}));
  }));
  EXPECT_EQ(Peers().sum({5, -7}), (std::vector<i64>{5, -7}));
}

// Makes the second of two ranks announce a text of `size_told` bytes but send `bytes` bytes. Returns the first rank's error.
std::string told(i64 size_told, i64 bytes) {
  auto ends = parallel::make_local_communicators(2, {.timeout_s = kTimeout_s});
  std::string error;
  std::thread second([&, end = std::move(ends[1])]() mutable {
    const Peers peers(std::move(end), "here");
    std::vector<i64> sizes(2);
    const std::string text(static_cast<size_t>(bytes), 'x');
    std::string both(static_cast<size_t>(8 + bytes), ' ');
    parallel::Communicator& ranks = *peers.communicator();
    try {
      ranks.all_gather(std::as_bytes(std::span(&size_told, 1)), std::as_writable_bytes(std::span(sizes)), {0, 8, 16}).wait();
      ranks.all_gather(std::as_bytes(std::span(text)), std::as_writable_bytes(std::span(both)), {0, 8, 8 + bytes}).wait();
    } catch (const Error&) {  // the first rank throws before it enters the second all-gather
    }
  });
  try {
    Peers(std::move(ends[0]), "here").gather(std::vector<double>{1});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::peer);
    error = e.what();
  }
  second.join();
  return error;
}

TEST(Peers, SizesThatCannotBeAreRefused) {
  EXPECT_EQ(told(16, 16), "");
  for (const i64 size : {i64{-1}, i64{1} << 31, std::numeric_limits<i64>::max(), std::numeric_limits<i64>::min()})
    EXPECT_NE(told(size, 8).find("from rank 1, got " + std::to_string(size) + " bytes"), std::string::npos) << size;
  EXPECT_NE(told(9, 9).find("got 9 bytes"), std::string::npos);
}

}  // namespace
}  // namespace spillway::trainer::peers_test
