#include "device/copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/thread_pool.h"
#include "device/memory_pool.h"
#include "device/stream.h"

namespace spillway::copy_test {
namespace {

// A copy is complete and changes no byte beside its destination, wherever in a cache line source and destination begin and end.
TEST(Copy, EveryAlignmentAndLength) {
  constexpr i64 kMost = 400, kEdge = 70;
  std::vector<std::byte> from(kMost), to(kMost);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (i64 begin = 0; begin < kEdge; begin += 3) {
    for (i64 source = 0; source < kEdge; source += 11) {
      for (i64 bytes : {0, 1, 15, 63, 64, 65, 127, 128, 200, 320}) {
        to.assign(to.size(), std::byte{0xee});
        copy_past_caches(to.data() + begin, from.data() + source, bytes);
        for (i64 i = 0; i < kMost; ++i) {
          const bool inside = i >= begin && i < begin + bytes;
          ASSERT_EQ(to[static_cast<size_t>(i)], inside ? from[static_cast<size_t>(source + i - begin)] : std::byte{0xee})
              << "byte " << i << " of a copy of " << bytes << " from " << source << " to " << begin;
        }
      }
    }
  }
}

TEST(Copy, ManyPiecesBySeveralThreads) {
  ThreadPool threads(3);
  MemoryPool pool("copy", kUnlimited);
  const Stream stream{Device::cpu(), &threads, &pool};
  const StreamScope scope(stream);
  std::vector<u32> from(3'000'001), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<u32>(i * 2654435761u);
  copy_past_caches(reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()), std::ssize(from) * 4);
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace spillway::copy_test
