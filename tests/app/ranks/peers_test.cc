// What ranks owe each other outside of steps: time for what one of them does alone.
#include "app/ranks/peers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "parallel/comm/communicator_local.h"

namespace spillway::app::peers_test {
namespace {

constexpr double kTimeout_s = 0.5;

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Whether two ranks, of which the second is the slower, come to the end of what both do.
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

// Who meets others in it is at work no longer.
TEST(Peers, DoNotWaitForWhoHangsBetweenMeetings) {
  EXPECT_FALSE(both_end([](const Peers& peers) {
    peers.together([&] {
      peers.most({0});
      if (!peers.first()) sleep(3 * kTimeout_s);
    });
  }));
}

}  // namespace
}  // namespace spillway::app::peers_test
