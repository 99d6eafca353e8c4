// Tests ranks whose process ends or stops during a collective: the events of all other ranks fail with an error that names that rank.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "tests/sockets/ranks.h"

namespace spillway::parallel::test::death_test {
namespace {

using testing::HasSubstr;

constexpr double kLong_s = 300;  // a time-out in seconds that no passing test waits for, since it is far too long
constexpr double kShort_s = 1;

std::string failure_of(const Event& event) {
  try {
    event.wait();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer) << error.what();
    return error.what();
  }
  return "no failure";
}

std::string named() { return "rank " + std::to_string(ending_rank()); }

// Runs all-reduces until one fails. On the rank that is to end, another thread raises `signal` while all-reduces are in flight.
std::string sum_until_failure(Communicator& end, int signal) {
  std::vector<float> values(1 << 20, 1.0F);
  std::thread killer;
  if (end.rank() == ending_rank()) {
    killer = std::thread([signal] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      raise(signal);
    });
  }
  for (int k = 0; k < 1'000'000; ++k) {
    const std::string failure = failure_of(end.all_reduce(std::as_writable_bytes(std::span(values)), DType::f32, Reduction::max));
    if (failure == "no failure") continue;
    if (killer.joinable()) killer.join();
    return failure;
  }
  return "no failure";
}

TEST(Death, KilledRankIsNamedAtOnce) {
  ASSERT_GE(ending_rank(), 0) << "for tests/sockets.cmake to run";
  run_here(all_ranks(), kLong_s, [](auto& end) { EXPECT_THAT(sum_until_failure(*end, SIGKILL), HasSubstr(named())); });
}

TEST(Death, KilledRankFailsItsMessages) {
  ASSERT_GE(ending_rank(), 0) << "for tests/sockets.cmake to run";
  run_here(all_ranks(), kLong_s, [](auto& end) {
    std::vector<std::byte> out(64 << 20), in(64 << 20);
    const auto part = end->split(0);
    part->barrier().wait();
    if (end->rank() == ending_rank()) {
      // The sends of the other ranks to this rank have been accepted and are in flight when this rank kills itself.
      std::vector<std::vector<std::byte>> all(static_cast<size_t>(end->size()), in);
      std::vector<Event> events;
      for (int r = 0; r < end->size(); ++r) {
        if (r != end->rank()) events.push_back(end->receive(all[static_cast<size_t>(r)], r, 1));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      raise(SIGKILL);
    }
    const Event sent = end->send(out, ending_rank(), 1), never = end->receive(in, ending_rank(), 2), below = part->barrier();
    EXPECT_THAT(failure_of(never), HasSubstr(named()));
    EXPECT_THAT(failure_of(below), HasSubstr(named()));
    try {
      sent.wait();  // the wait succeeds if the data was sent before the rank died
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(named()));
    }
    out.clear(), out.shrink_to_fit();  // after wait() no thread accesses the buffer, so it may be freed
    EXPECT_THAT(failure_of(end->barrier()), HasSubstr(named()));
  });
}

// The other ranks name a stopped rank in their errors, and the end of the test does not wait for the stopped rank either.
TEST(Death, StoppedRankIsNamed) {
  ASSERT_GE(ending_rank(), 0) << "for tests/sockets.cmake to run";
  const auto begin = std::chrono::steady_clock::now();
  run_here(all_ranks(), kShort_s, [](auto& end) { EXPECT_THAT(sum_until_failure(*end, SIGSTOP), HasSubstr(named())); });
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 8);
}

// Ctrl-Z in a terminal stops all ranks. Here the stop lasts longer than the time-out while rank 0 waits, but no rank counts as late.
TEST(Death, AllStoppedTogetherGoOn) {
  run_here(all_ranks(), kShort_s, [](auto& end) {
    end->barrier().wait();
    const Event waits = end->rank() == 0 ? end->barrier() : Event();
    const pid_t self = getpid();
    if (fork() == 0) {
      const timespec twice{2, 500'000'000};
      nanosleep(&twice, nullptr);
      kill(self, SIGCONT);
      _exit(0);
    }
    raise(SIGSTOP);
    (end->rank() == 0 ? waits : end->barrier()).wait();
  });
}

}  // namespace
}  // namespace spillway::parallel::test::death_test
