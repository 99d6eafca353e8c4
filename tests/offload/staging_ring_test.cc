#include "offload/staging_ring.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/offload/support_blob.h"

namespace spillway::offload::staging_ring_test {
namespace {

using namespace std::chrono_literals;
using test::Buffer;
using test::error_of;

constexpr i64 kTile = 32 * kKiB;

// Shows that host memory stays the same while two threads read, change and write every tile of a blob that is 100 times the ring's size.
TEST(StagingRing, HostMemoryStaysTheSameHoweverMuchFlows) {
  constexpr i64 kTiles = 400;
  MemoryPool pool("host", 4 * kTile);
  StagingRing ring(pool, 4, kTile, "staging");
  Traffic traffic;
  test::StoreBlob state(kTiles, kTile, 2, traffic, IoEngineKind::automatic);
  Blob& blob = state.blob();
  const auto stream = [&](i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t) {
      StagingRing::Lease lease = ring.acquire();
      blob.read({t, t + 1}, 0, lease.bytes()).wait();
      for (std::byte& byte : lease.bytes()) byte = static_cast<std::byte>(t % 251 + 1);
      lease.busy_until(test::stamp_and_write(blob, {t, t + 1}, 1, lease.bytes()));
      ASSERT_EQ(pool.used_bytes(), 4 * kTile);
    }
  };
  std::thread other([&] { stream(0, kTiles / 2); });
  stream(kTiles / 2, kTiles);
  other.join();
  std::vector<StagingRing::Lease> all;  // all four buffers can be taken only after every write is done
  for (int i = 0; i < 4; ++i) all.push_back(ring.acquire());
  EXPECT_EQ(traffic.written_bytes[2], 100 * 4 * kTile);
  EXPECT_EQ(pool.peak_bytes(), 4 * kTile);
  Buffer in(kTile);
  for (i64 t = 0; t < kTiles; ++t) {
    blob.read({t, t + 1}, 1, in.span()).wait();
    ASSERT_EQ(in.span().front(), static_cast<std::byte>(t % 251 + 1)) << t;
    ASSERT_EQ(in.span().back(), static_cast<std::byte>(t % 251 + 1)) << t;
  }
}

TEST(StagingRing, BuffersAreAlignedAndApart) {
  MemoryPool pool("host", kUnlimited);
  StagingRing ring(pool, 3, 5000, "staging");
  EXPECT_EQ(pool.used_bytes(), 3 * 8192);
  std::vector<StagingRing::Lease> leases;
  for (int i = 0; i < 3; ++i) leases.push_back(ring.acquire());
  for (int i = 0; i < 3; ++i) {
    const auto bytes = leases[static_cast<size_t>(i)].bytes();
    EXPECT_EQ(std::ssize(bytes), 5000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 4096, 0u);
    std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(i));
  }
  for (int i = 0; i < 3; ++i) {
    for (const std::byte byte : leases[static_cast<size_t>(i)].bytes()) ASSERT_EQ(byte, static_cast<std::byte>(i));
  }
}

TEST(StagingRing, AcquireBlocksUntilABufferIsBack) {
  MemoryPool pool("host", kUnlimited);
  StagingRing ring(pool, 1, 4096, "staging");
  std::atomic<bool> got{false};
  std::thread waiter;
  {
    const StagingRing::Lease held = ring.acquire();
    waiter = std::thread([&] {
      const StagingRing::Lease second = ring.acquire();
      got = true;
    });
    std::this_thread::sleep_for(30ms);
    EXPECT_FALSE(got);
  }
  waiter.join();
  EXPECT_TRUE(got);
}

TEST(StagingRing, WaitsNoLongerThanItIsTold) {
  MemoryPool pool("host", kUnlimited);
  StagingRing ring(pool, 1, 4096, "staging");
  {
    const auto first = ring.acquire_for(0);
    ASSERT_TRUE(first.has_value());
    EXPECT_FALSE(ring.acquire_for(0).has_value());
    EXPECT_FALSE(ring.acquire_for(0.01).has_value());
  }
  EXPECT_TRUE(ring.acquire_for(0.01).has_value());
}

TEST(StagingRing, ABusyBufferIsNotHandedOn) {
  MemoryPool pool("host", kUnlimited);
  StagingRing ring(pool, 1, 4096, "staging");
  Event written;
  std::thread writer([&] {
    std::this_thread::sleep_for(30ms);
    written.fail(std::make_exception_ptr(Error(ErrorCode::io, "planted")));  // a failed write must return its buffer as well
  });
  { ring.acquire().busy_until(written); }
  EXPECT_TRUE(written.ready());
  const StagingRing::Lease again = ring.acquire();
  writer.join();
}

TEST(StagingRing, AMovedLeaseIsGivenBackOnce) {
  MemoryPool pool("host", kUnlimited);
  {
    StagingRing ring(pool, 2, 4096, "staging");
    StagingRing::Lease first = ring.acquire();
    const std::byte* at = first.bytes().data();
    StagingRing::Lease moved = std::move(first);
    EXPECT_EQ(moved.bytes().data(), at);
    const StagingRing::Lease second = ring.acquire();
    EXPECT_NE(second.bytes().data(), at);
  }
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(StagingRing, TheBudgetIsAskedOnceAndHard) {
  MemoryPool pool("host", 8192, "raise --host-memory");
  const auto error = error_of([&] { StagingRing ring(pool, 3, 4096, "staging ring"); });
  EXPECT_EQ(error.code, ErrorCode::refused);
  EXPECT_TRUE(error.says("staging ring") && error.says("--host-memory")) << error.text;
  EXPECT_EQ(error_of([&] { StagingRing ring(pool, 0, 4096, "staging ring"); }).code, ErrorCode::bug);
}

}  // namespace
}  // namespace spillway::offload::staging_ring_test
