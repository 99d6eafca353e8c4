#include "parallel/comm/communicator_local.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "base/error.h"
#include "tests/parallel/comm/support_communicator.h"

namespace spillway::parallel::test::communicator_local_test {
namespace {

void run_threads(int ranks, double timeout_s, const Body& body) {
  auto ends = make_local_communicators(ranks, {.timeout_s = timeout_s});
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&body, r, end = std::move(ends[static_cast<size_t>(r)])]() mutable { run_rank(r, std::move(end), body); });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<Group> threads(const std::vector<int>& counts) {
  std::vector<Group> groups;
  for (const int ranks : counts) groups.push_back({"Threads" + std::to_string(ranks), ranks, run_threads});
  return groups;
}

INSTANTIATE_TEST_SUITE_P(Local, CommunicatorOf, testing::ValuesIn(threads({1, 2, 3, 4, 9, 17})), name_of);
INSTANTIATE_TEST_SUITE_P(Local, CommunicatorFailureOf, testing::ValuesIn(threads({2, 3, 9})), name_of);
INSTANTIATE_TEST_SUITE_P(Local, SoakCommunicatorOf, testing::ValuesIn(threads({2})), name_of);

TEST(LocalCommunicator, RefusesWhatMakesNoGroup) {
  EXPECT_THROW(make_local_communicators(0), Error);
  EXPECT_THROW(make_local_communicators(2, {.timeout_s = 0}), Error);
  EXPECT_THROW(make_local_communicators(2, {.threads = 0}), Error);
  EXPECT_THROW(make_local_communicators(2, {.timeout_s = std::nan("")}), Error);
}

TEST(LocalCommunicator, NobodyWorksAloneForEver) {
  constexpr double kTimeout_s = 0.02;
  const auto ends = make_local_communicators(2, {.timeout_s = kTimeout_s});
  ends[1]->works_alone();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(ends[0]->barrier().wait(), Error);
  EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), kLongestWork * kTimeout_s);
}

// Shows that groups share nothing with other groups of the same process.
TEST(LocalCommunicator, GroupsOfOneProcessAreIndependent) {
  std::vector<std::thread> groups;
  for (int g = 0; g < 4; ++g) {
    groups.emplace_back([g] {
      run_threads(1 + g, 60, [g](auto& end) {
        for (int round = 0; round < 50; ++round) {
          i64 sum = g;
          end->all_reduce(std::as_writable_bytes(std::span(&sum, 1)), DType::int64, Reduction::sum).wait();
          ASSERT_EQ(sum, g * end->size());
        }
      });
    });
  }
  for (std::thread& group : groups) group.join();
}

// Stops this process for about `seconds`. A forked child then sends SIGCONT until the process runs again.
void stop_for(double seconds) {
  const auto time = [](double s) { return timespec{static_cast<time_t>(s), static_cast<long>(std::fmod(s, 1) * 1e9)}; };
  const timespec whole = time(seconds), tenth = time(0.1);
  const pid_t self = getpid(), child = fork();
  if (child == 0) {
    for (nanosleep(&whole, nullptr); kill(self, SIGCONT) == 0;) nanosleep(&tenth, nullptr);
    _exit(0);
  }
  raise(SIGSTOP);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// Stops all ranks together, as by a terminal's Ctrl-Z, for longer than the time-out while
// rank 0 waits. None of the ranks was late, so the group must still work.
TEST(LocalCommunicator, AllStoppedTogetherGoOn) {
  run_threads(2, 1, [](auto& end) {
    end->barrier().wait();
    const Event waits = end->rank() == 0 ? end->barrier() : Event::done();
    if (end->rank() == 1) stop_for(2.5);
    (end->rank() == 0 ? waits : end->barrier()).wait();
  });
}

}  // namespace
}  // namespace spillway::parallel::test::communicator_local_test
