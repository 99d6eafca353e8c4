#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace spillway::thread_pool_test {
namespace {

class ThreadPoolOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolOf, RunsEveryTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const i64 count : {0, 1, 2, 7, 1000}) {
    std::vector<int> runs(static_cast<size_t>(count), 0);  // plain ints, so that ThreadSanitizer reports a task that runs twice at once
    pool.run(count, [&](i64 i, int thread) {
      EXPECT_GE(thread, 0);
      EXPECT_LT(thread, pool.threads());
      ++runs[static_cast<size_t>(i)];
    });
    for (const int r : runs) EXPECT_EQ(r, 1);
  }
}

TEST_P(ThreadPoolOf, WritesAreSeenAfterRunAndByTheNext) {
  ThreadPool pool(GetParam());
  std::vector<i64> values(64, 0), mirror(64, 0);
  for (int round = 0; round < 200; ++round) {  // there are many short rounds, so that workers both sleep and spin
    pool.run(64, [&](i64 i, int) { values[static_cast<size_t>(i)] = mirror[static_cast<size_t>(63 - i)] + i; });
    pool.run(64, [&](i64 i, int) { mirror[static_cast<size_t>(63 - i)] = values[static_cast<size_t>(i)]; });
    if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<i64>(200 * i));
}

TEST_P(ThreadPoolOf, NestedRunsFinishInPlace) {
  ThreadPool pool(GetParam());
  std::vector<i64> sums(20, 0);
  pool.run(20, [&](i64 i, int) {
    pool.run(10, [&](i64 j, int thread) {
      EXPECT_EQ(thread, 0);
      sums[static_cast<size_t>(i)] += j;
    });
  });
  for (const i64 sum : sums) EXPECT_EQ(sum, 45);
}

TEST_P(ThreadPoolOf, SecondCallerRunsSerially) {
  ThreadPool pool(GetParam());
  std::atomic<i64> total{0};
  const auto caller = [&] {
    for (int round = 0; round < 200; ++round) pool.run(16, [&](i64 i, int) { total += i; });
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_EQ(total, 2 * 200 * 120);
}

TEST_P(ThreadPoolOf, RethrowsAfterTheOthersHaveFinishedAndGoesOn) {
  ThreadPool pool(GetParam());
  std::atomic<int> ran{0};
  const auto failing = [&](i64 i, int) {
    ++ran;
    if (i % 10 == 3) throw Error(ErrorCode::io, "task " + std::to_string(i));
  };
  EXPECT_THROW(pool.run(100, failing), Error);
  EXPECT_EQ(ran, 100);
  int after = 0;
  pool.run(1, [&](i64, int) { ++after; });
  EXPECT_EQ(after, 1);
  EXPECT_NO_THROW(pool.run(50, [](i64, int) {}));  // a later run does not throw the error again
}

TEST_P(ThreadPoolOf, RangesDoNotDependOnTheThreadCount) {
  ThreadPool pool(GetParam());
  std::vector<std::pair<i64, i64>> ranges(4);
  pool.for_ranges(10, 3, [&](i64 begin, i64 end) { ranges[static_cast<size_t>(begin / 3)] = {begin, end}; });
  EXPECT_EQ(ranges, (std::vector<std::pair<i64, i64>>{{0, 3}, {3, 6}, {6, 9}, {9, 10}}));
  pool.for_ranges(0, 3, [](i64, i64) { FAIL(); });
}

TEST_P(ThreadPoolOf, KeepsDenormals) {
  ThreadPool pool(GetParam());
  std::vector<float> results(64);
  volatile float tiny = std::numeric_limits<float>::min();
  pool.run(64, [&](i64 i, int) { results[static_cast<size_t>(i)] = tiny / 4; });
  for (const float r : results) EXPECT_GT(r, 0);
}

TEST(ThreadPool, RefusesNoThreads) { EXPECT_THROW(ThreadPool(0), Error); }

TEST(ThreadPool, ManyPoolsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3);
    if (i % 2) pool.run(8, [](i64, int) {});
  }
}

}  // namespace
}  // namespace spillway::thread_pool_test
