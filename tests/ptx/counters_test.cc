#include "ptx/counters.h"

#include <gtest/gtest.h>

namespace spillway::test::counters_test {
namespace {

using namespace ptx;

std::array<u64, kLanes> apart(u64 bytes, u64 first = 4096) {
  std::array<u64, kLanes> a;
  for (u32 l = 0; l < kLanes; ++l) a[l] = first + l * bytes;
  return a;
}

// A sector of global memory has 32 bytes.
TEST(Counters, SectorsOfARequest) {
  const auto sectors = [](u64 step, u32 bytes, u32 mask = kAllLanes) {
    Counters c;
    c.request(Space::global, apart(step), mask, bytes, true);
    EXPECT_EQ(c.global_loads, 1U);
    EXPECT_EQ(c.global_load_bytes, u64{bytes} * static_cast<u64>(__builtin_popcount(mask)));
    return c.global_load_sectors;
  };
  EXPECT_EQ(sectors(4, 4), 4U);     // coalesced words
  EXPECT_EQ(sectors(16, 16), 16U);  // coalesced vectors of four
  EXPECT_EQ(sectors(0, 4), 1U);     // all lanes read one word
  EXPECT_EQ(sectors(64, 4), 32U);   // a column
  EXPECT_EQ(sectors(4, 4, 0xff), 1U);
}

// Shared memory has 32 banks of 4 bytes. Wide requests are served in parts.
TEST(Counters, WavesOfARequest) {
  const auto waves = [](u64 step, u32 bytes) {
    Counters c;
    c.request(Space::shared, apart(step, 0), kAllLanes, bytes, true);
    EXPECT_EQ(c.shared_requests, 1U);
    return c.shared_waves;
  };
  EXPECT_EQ(waves(4, 4), 1U);
  EXPECT_EQ(waves(0, 4), 1U);  // one word goes to all lanes at once
  EXPECT_EQ(waves(8, 4), 2U);
  EXPECT_EQ(waves(128, 4), 32U);
  EXPECT_EQ(waves(132, 4), 1U);  // a column of a tile with a word of padding
  EXPECT_EQ(waves(16, 16), 4U);
}

TEST(Counters, GenericAddressesTellTheirSpace) {
  Counters c;
  c.request(Space::generic, apart(4, kSharedWindow), kAllLanes, 4, true);
  c.request(Space::generic, apart(4), kAllLanes, 4, false);
  EXPECT_EQ(c.shared_requests, 1U);
  EXPECT_EQ(c.global_stores, 1U);
}

}  // namespace
}  // namespace spillway::test::counters_test
