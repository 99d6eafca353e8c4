// Tests that the executor obeys the order of instructions. An error in any instruction stops the other threads and is thrown by run().
#include "parallel/run/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace spillway::parallel::executor_test {
namespace {

Instruction on(Lane lane, std::vector<u32> after = {}) { return {.lane = lane, .after = std::move(after)}; }

TEST(Executor, ObeysLanesAndAfter) {
  const List list = {on(Lane::load),       on(Lane::compute, {0}),    on(Lane::load),
                     on(Lane::store, {1}), on(Lane::compute, {2, 3}), on(Lane::optimizer, {4})};
  Executor executor;
  for (int round = 0; round < 200; ++round) {
    std::mutex mutex;
    std::vector<size_t> order;
    executor.run(list, [&](const Instruction& i) {
      std::lock_guard lock(mutex);
      order.push_back(static_cast<size_t>(&i - list.data()));
      return 0;
    });
    ASSERT_EQ(order.size(), list.size());
    std::vector<size_t> place(list.size());
    for (size_t n = 0; n < order.size(); ++n) place[order[n]] = n;
    EXPECT_LT(place[0], place[1]);
    EXPECT_LT(place[0], place[2]);
    EXPECT_LT(place[1], place[3]);
    EXPECT_LT(place[2], place[4]);
    EXPECT_LT(place[3], place[4]);
    EXPECT_LT(place[4], place[5]);
  }
}

TEST(Executor, AnErrorStopsTheOthers) {
  List list;
  for (int i = 0; i < 50; ++i) list.push_back(on(Lane::load));
  list.push_back(on(Lane::compute, {49}));
  std::atomic<int> performed{0};
  try {
    Executor().run(list, [&](const Instruction& i) {
      if (&i - list.data() == 10) throw Error(ErrorCode::io, "[test] the disk is gone");
      ++performed;
      return 0;
    });
    FAIL() << "expected the error of the load lane";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_STREQ(e.what(), "[test] the disk is gone");
  }
  EXPECT_EQ(performed, 10);
}

TEST(Executor, LanesRunAtTheSameTime) {
  const List list = {on(Lane::load), on(Lane::compute)};
  std::atomic<int> arrived{0};
  const auto timings = Executor().run(list, [&](const Instruction&) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();  // the loop ends only if both instructions run at the same time
    return 7;
  });
  EXPECT_EQ(timings[1].disk_us, 7);
  EXPECT_LT(timings[0].start_us, timings[1].end_us);
  EXPECT_LT(timings[1].start_us, timings[0].end_us);
}

TEST(Executor, KeepsItsThreadsAlsoAfterAnError) {
  Executor executor;
  const auto threads_of = [&](const List& list) {
    std::mutex mutex;
    std::map<Lane, std::thread::id> threads;
    executor.run(list, [&](const Instruction& i) {
      const std::lock_guard lock(mutex);
      threads[i.lane] = std::this_thread::get_id();
      return 0;
    });
    return threads;
  };
  const auto before = threads_of({on(Lane::load), on(Lane::compute), on(Lane::store)});
  EXPECT_THROW(executor.run({on(Lane::load)}, [](const Instruction&) -> double { throw Error(ErrorCode::io, "[test]"); }), Error);
  auto after = threads_of({on(Lane::store), on(Lane::optimizer), on(Lane::load), on(Lane::compute)});
  after.erase(Lane::optimizer);
  EXPECT_EQ(after, before);
  EXPECT_EQ(before.at(Lane::compute), std::this_thread::get_id());
}

}  // namespace
}  // namespace spillway::parallel::executor_test
