#include "device/stream.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"
#include "device/arena.h"
#include "device/memory_pool.h"

namespace spillway::stream_test {
namespace {

TEST(Stream, WithoutOneAThreadComputesSeriallyFromTheHeap) {
  const Stream& stream = Stream::current();
  EXPECT_EQ(stream.device, Device::cpu());
  EXPECT_EQ(stream.memory, &MemoryPool::heap());
  EXPECT_EQ(stream.thread_count(), 1);
  std::vector<i64> order;
  stream.run(4, [&](i64 i, int thread) {
    EXPECT_EQ(thread, 0);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<i64>{0, 1, 2, 3}));
}

TEST(Stream, ScopesNestAndEndInOrderEvenByException) {
  Arena memory;
  const Stream outer{Device::cpu(), nullptr, &memory}, inner{Device::meta(), nullptr, &memory};
  try {
    const StreamScope a(outer);
    EXPECT_EQ(&Stream::current(), &outer);
    const StreamScope b(inner);
    EXPECT_EQ(&Stream::current(), &inner);
    throw Error(ErrorCode::bug, "x");
  } catch (const Error&) {
  }
  EXPECT_EQ(Stream::current().memory, &MemoryPool::heap());
}

TEST(Stream, IsTheThreadsOwn) {
  Arena memory;
  const Stream mine{Device::meta(), nullptr, &memory};
  const StreamScope scope(mine);
  std::thread([] { EXPECT_FALSE(Stream::current().is_meta()); }).join();
  EXPECT_TRUE(Stream::current().is_meta());
}

TEST(Stream, AnErrorInATaskComesAfterTheOtherTasksWithAndWithoutAPool) {
  ThreadPool pool(2);
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    const Stream stream{Device::cpu(), threads, &MemoryPool::heap()};
    std::vector<int> ran(8, 0);
    EXPECT_THROW(stream.run(8,
                            [&](i64 i, int) {
                              ran[static_cast<size_t>(i)] = 1;
                              if (i == 0) throw Error(ErrorCode::io, "x");
                            }),
                 Error);
    EXPECT_EQ(ran, std::vector<int>(8, 1));
  }
}

TEST(Stream, RangesAreTheSameWithAndWithoutAPool) {
  ThreadPool pool(3);
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    const Stream stream{Device::cpu(), threads, &MemoryPool::heap()};
    std::vector<i64> ends(3);
    stream.for_ranges(100, 40, [&](i64 begin, i64 end) { ends[static_cast<size_t>(begin / 40)] = end; });
    EXPECT_EQ(ends, (std::vector<i64>{40, 80, 100}));
  }
}

TEST(Device, Names) {
  EXPECT_EQ(to_string(Device::cpu()), "cpu");
  EXPECT_EQ(to_string(Device::cuda(1)), "cuda:1");
  EXPECT_EQ(to_string(Device::meta()), "meta");
}

}  // namespace
}  // namespace spillway::stream_test
