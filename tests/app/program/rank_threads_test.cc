// Tests --communicator local, whose ranks are threads of one process. rank_matrix_test.cc
// shows that their losses and weights equal those of ranks that are processes.
#include "trainer/ranks/rank_threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <iostream>
#include <iterator>
#include <latch>
#include <sstream>
#include <thread>

#include "app/console/console.h"
#include "base/error.h"
#include "tests/app/program/support_ranks.h"
#include "trainer/node/stop.h"

namespace spillway::app::rank_threads_test {
namespace {

struct RankThreadsTest : testing::Test {
  std::ostringstream out, err;
  Console console{out, err};
};

TEST_F(RankThreadsTest, AgreeOnTheStatus) {
  std::latch all(3);
  const auto body = [&](int rank, const auto& end) {
    EXPECT_EQ(end->rank(), rank);
    EXPECT_EQ(end->size(), 3);
    all.arrive_and_wait();  // returns only if all ranks run at the same time
    return rank == 1 ? 75 : 0;
  };
  EXPECT_EQ(run_rank_threads({.ranks = 3}, console, body), 75);
  EXPECT_EQ(run_rank_threads({.ranks = 1}, console, [](int, const auto& end) { return end ? 1 : 0; }), 0);
}

// Rank 0 fails before rank 1 does, but only because rank 1 aborted the barrier. The error that is thrown is rank 1's own.
TEST_F(RankThreadsTest, ThrowWhatTheFirstThrewThatFailedByItself) {
  const auto body = [](int rank, const std::unique_ptr<parallel::Communicator>& end) -> int {
    if (rank == 1) {
      end->abort("no room");
      try {
        end->barrier().wait();
      } catch (const Error&) {
      }
      throw Error(ErrorCode::io, "[planted] no room");
    }
    end->barrier().wait();
    return 0;
  };
  EXPECT_EQ(message_of([&] { run_rank_threads({.ranks = 4}, console, body); }), "[planted] no room");
  EXPECT_EQ(err.str(), "");
}

// If a rank never enters a collective, the error names it, and the process exits although that rank's thread still runs.
TEST_F(RankThreadsTest, AHangingOneIsNamedAndLeftBehind) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    Console to_stderr(std::cout, std::cerr);
    run_rank_threads({.ranks = 2, .timeout_s = 0.2, .grace_s = 0.1, .leave = ::_exit}, to_stderr, [](int rank, const auto& end) {
      while (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
      end->barrier().wait();
      return 0;
    });
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(6), "rank 1 .*; rank 1 did not end within 0.1 s");
}

// A process that belongs to another program may not exit. run_rank_threads()
// then waits until the hanging rank has ended, and throws the first failure.
TEST_F(RankThreadsTest, AHangingOneIsWaitedForInAProcessThatMayNotExit) {
  std::ostringstream said;
  Console to_text(said, said);
  std::atomic<bool> slow_ended = false;
  const auto work = [&](int rank, const auto& end) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    if (rank == 1) return slow_ended = true, 0;
    end->barrier().wait();
    return 0;
  };
  EXPECT_THROW(run_rank_threads({.ranks = 2, .timeout_s = 0.2, .grace_s = 0.1}, to_text, work), Error);
  EXPECT_TRUE(slow_ended);
  EXPECT_NE(said.str().find("rank 1 did not end within 0.1 s after that, so the program waits"), std::string::npos) << said.str();
}

struct LocalRanks : testing::Test {
  TemporaryFolder folder;
  std::string run = (folder.path() / "run").string();
  // Returns the number of steps that are done and recorded in metrics.jsonl.
  i64 steps() const {
    std::ifstream file(run + "/metrics.jsonl");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }
  Outcome train(const std::vector<std::string>& more, const std::string& device_memory = "64MiB") const {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + i * i % 26);
    std::vector<std::string> all = {"train",
                                    "--ranks",
                                    "2",
                                    "--communicator",
                                    "local",
                                    "--model",
                                    "llama-tiny",
                                    "--data",
                                    folder.write("text.txt", text),
                                    "--sequence-length",
                                    "16",
                                    "--device-memory",
                                    device_memory,
                                    "--host-memory",
                                    "64MiB",
                                    "--zero-stage",
                                    "2",
                                    "--out",
                                    run};
    all.insert(all.end(), more.begin(), more.end());
    return run_app(all);
  }
};

TEST_F(LocalRanks, SpeakOnceAndKeepTheirRun) {
  const Outcome trained = train({"--steps", "3"});
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_NE(trained.err.find("new run of 3 steps"), std::string::npos) << trained.err;
  EXPECT_NE(trained.err.find("(2 ranks x 1 x 1)"), std::string::npos) << trained.err;
  EXPECT_EQ(trained.out.find("done: step 3"), trained.out.rfind("done: step 3")) << trained.out;
  EXPECT_EQ(numbers_in(run).size(), 3u);
  EXPECT_GT(state_in(run, 3).size(), 1'000'000u);
  const Outcome more = train({"--steps", "5"});
  EXPECT_TRUE(more.status == 0 && more.err.find("continues at step 3 of 5") != std::string::npos) << more.err;
}

TEST_F(LocalRanks, FailWithOneMessage) {
  const Outcome refused = train({"--steps", "3"}, "1MiB");
  EXPECT_EQ(refused.status, 3) << refused.err;
  const size_t at = refused.err.find("spillway train: ");  // if planning is slow, progress lines come first
  ASSERT_NE(at, std::string::npos) << refused.err;
  EXPECT_TRUE(at == 0 || refused.err[at - 1] == '\n') << refused.err;
  EXPECT_EQ(refused.err.find("spillway train: "), refused.err.rfind("spillway train: ")) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(run));
}

TEST_F(LocalRanks, ASignalStopsAllAfterTheSameStep) {
  std::atomic<bool> ended = false;
  std::thread stopper([&] {
    while (steps() < 3 && !ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!ended) std::raise(SIGUSR1);
  });
  const Outcome stopped = train({"--steps", "100000"});
  ended = true;
  stopper.join();
  clear_stop();
  EXPECT_EQ(stopped.status, 75) << stopped.err;
  EXPECT_NE(stopped.err.find("stopped by SIGUSR1 of rank "), std::string::npos) << stopped.err;
  EXPECT_GT(state_in(run, static_cast<int>(steps())).size(), 1'000'000u);
}

}  // namespace
}  // namespace spillway::app::rank_threads_test
