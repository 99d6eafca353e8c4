#include "device/memory_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"

namespace spillway::memory_pool_test {
namespace {

using testing::HasSubstr;

std::string refusal_of(MemoryPool& pool, i64 bytes, const char* what) {
  try {
    pool.allocate(bytes, what);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::refused);
    return e.what();
  }
  ADD_FAILURE() << "the pool gave " << bytes << " bytes";
  return "";
}

TEST(MemoryPool, CountsWhatIsHeldAndThePeak) {
  MemoryPool pool("host", kMiB);
  {
    const Allocation a = pool.allocate(10000, "a");
    EXPECT_EQ(a.bytes(), 10000);
    EXPECT_EQ(pool.used_bytes(), 12288);  // whole pages count, since the pool requests pages from the system
    const Allocation b = pool.allocate(4096, "b");
    EXPECT_EQ(pool.used_bytes(), 16384);
  }
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(pool.peak_bytes(), 16384);
}

TEST(MemoryPool, TheBudgetIsHardToTheByte) {
  MemoryPool pool("host", 8192);
  Allocation whole = pool.allocate(8192, "all of it");
  refusal_of(pool, 1, "one more");
  EXPECT_EQ(pool.used_bytes(), 8192);
  whole.reset();
  EXPECT_NO_THROW(pool.allocate(8192, "again"));
  refusal_of(pool, 8193, "too much");
  EXPECT_LE(pool.peak_bytes(), pool.budget_bytes());
}

TEST(MemoryPool, RefusalSaysWhoWhatHowMuchWhatIsHeldAndWhatHelps) {
  MemoryPool pool("device", kMiB, "raise --device-memory");
  const Allocation weights = pool.allocate(600 * kKiB, "weights"), one = pool.allocate(100 * kKiB, "activations"),
                   two = pool.allocate(100 * kKiB, "activations");
  const std::string text = refusal_of(pool, 300 * kKiB, "logits");
  for (const char* part : {"device", "logits", "300.0 KiB", "800.0 KiB", "1.00 MiB", "weights", "600.0 KiB", "activations", "200.0 KiB",
                           "raise --device-memory"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  // The pool's table lists the largest allocation first and adds up allocations with equal names.
  EXPECT_LT(text.find("  weights"), text.find("  activations"));
}

TEST(MemoryPool, AbsurdSizesAreRefusedNotWrapped) {
  MemoryPool pool("host", kGiB);
  refusal_of(pool, kUnlimited, "everything");
  refusal_of(pool, kUnlimited - 100, "nearly everything");
  EXPECT_THROW(pool.allocate(-1, "less than nothing"), Error);
  try {
    MemoryPool::heap().allocate(kUnlimited, "everything");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);  // the size is within the pool's budget, but the system has not so much memory
    EXPECT_THAT(e.what(), HasSubstr("errno"));
  }
}

TEST(MemoryPool, MemoryIsZeroAlignedAndWritable) {
  MemoryPool pool("host", 64 * kMiB);
  for (const i64 bytes : {i64{1}, i64{5000}, 2 * kMiB - 1, 2 * kMiB, 3 * kMiB + 7}) {
    const Allocation memory = pool.allocate(bytes, "x");
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    EXPECT_EQ(at % (bytes >= 2 * kMiB ? 2 * kMiB : 4096), 0u);
    EXPECT_EQ(memory.data()[0], std::byte{0});
    EXPECT_EQ(memory.data()[bytes - 1], std::byte{0});
    std::memset(memory.data(), 1, static_cast<size_t>(bytes));
  }
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(MemoryPool, ZeroBytesAreNoMemory) {
  MemoryPool pool("host", 0);
  const Allocation nothing = pool.allocate(0, "nothing");
  EXPECT_EQ(nothing.data(), nullptr);
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(MemoryPool, AllocationsMove) {
  MemoryPool pool("host", kMiB);
  Allocation a = pool.allocate(4096, "a");
  std::byte* data = a.data();
  Allocation b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(pool.used_bytes(), 4096);
  b = pool.allocate(8192, "b");  // the assignment releases the earlier allocation of b
  EXPECT_EQ(pool.used_bytes(), 8192);
  b.reset();
  b.reset();
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(MemoryPool, IsThreadSafe) {
  MemoryPool pool("host", 10 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const Allocation memory = pool.allocate(4096 * (1 + t), "x");
        memory.data()[0] = std::byte{1};
        EXPECT_FALSE(pool.table().empty());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_LE(pool.peak_bytes(), 4096 * 10);
}

}  // namespace
}  // namespace spillway::memory_pool_test
