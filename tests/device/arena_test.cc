#include "device/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/memory_pool.h"

namespace spillway::arena_test {
namespace {

struct Trace {
  std::vector<i64> offsets;
  i64 peak_bytes = 0;
};

i64 rounded(i64 bytes) { return std::max(round_up(bytes, kAllocationAlignment), kAllocationAlignment); }

// Returns the lowest offset at which `bytes` bytes overlap no allocation in `held`.
i64 first_fit(const std::vector<Allocation>& held, i64 bytes) {
  std::vector<std::pair<i64, i64>> pieces;
  for (const Allocation& a : held) pieces.emplace_back(a.offset(), rounded(a.bytes()));
  std::sort(pieces.begin(), pieces.end());
  i64 at = 0;
  for (const auto& [offset, taken] : pieces) {
    if (offset - at >= rounded(bytes)) break;
    at = offset + taken;
  }
  return at;
}

// Makes a fixed pseudo-random sequence of requests and releases. After each
// one it checks the arena's invariants: alignment, no overlap, exact use.
Trace drive(Arena& arena, std::byte* base) {
  std::mt19937 random(17);
  std::vector<Allocation> held;
  Trace trace;
  for (int i = 0; i < 2000; ++i) {
    if (!held.empty() && random() % 100 < 45) {
      const size_t which = random() % held.size();
      held[which] = std::move(held.back());
      held.pop_back();
    } else {
      const i64 bytes = static_cast<i64>(random() % 5000), lowest = first_fit(held, bytes);
      held.push_back(arena.allocate(bytes, "piece"));
      EXPECT_EQ(held.back().offset(), lowest);
      trace.offsets.push_back(held.back().offset());
      EXPECT_EQ(held.back().data(), base ? base + held.back().offset() : nullptr);
    }
    i64 used = 0;
    for (const Allocation& a : held) {
      EXPECT_EQ(a.offset() % kAllocationAlignment, 0);
      used += rounded(a.bytes());
    }
    EXPECT_EQ(arena.used_bytes(), used);
  }
  std::vector<std::pair<i64, i64>> pieces;
  for (const Allocation& a : held) pieces.emplace_back(a.offset(), a.offset() + a.bytes());
  std::sort(pieces.begin(), pieces.end());
  for (size_t i = 1; i < pieces.size(); ++i) EXPECT_LE(pieces[i - 1].second, pieces[i].first);
  trace.peak_bytes = arena.peak_bytes();
  return trace;
}

TEST(Arena, SameRequestsSameOffsetsWithMemoryOrWithout) {
  Arena dry;
  const Trace without = drive(dry, nullptr);
  EXPECT_EQ(dry.used_bytes(), 0);
  MemoryPool pool("host", kUnlimited);
  const Allocation slab = pool.allocate(without.peak_bytes, "slab");  // the slab has exactly the bytes that the dry run reported
  Arena wet(slab.data(), slab.bytes());
  const Trace with = drive(wet, slab.data());
  EXPECT_EQ(with.offsets, without.offsets);
  EXPECT_EQ(with.peak_bytes, without.peak_bytes);
}

TEST(Arena, FirstFitTakesTheLowestHole) {
  Arena arena;
  Allocation a = arena.allocate(256, "a"), b = arena.allocate(512, "b"), c = arena.allocate(256, "c");
  EXPECT_EQ(c.offset(), 768);
  b.reset();
  EXPECT_EQ(arena.allocate(513, "too long for the hole").offset(), 1024);
  const Allocation d = arena.allocate(256, "d");
  EXPECT_EQ(d.offset(), 256);
  EXPECT_EQ(arena.allocate(0, "even nothing has a place of its own").offset(), 512);
  EXPECT_EQ(arena.peak_bytes(), 1024 + 768);
}

TEST(Arena, TooSmallASlabIsABugThatNamesTheSizes) {
  Arena arena(nullptr, 1024);
  const Allocation a = arena.allocate(1000, "a");
  try {
    arena.allocate(1, "logits");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bug);
    EXPECT_THAT(e.what(), testing::HasSubstr("1024"));
    EXPECT_THAT(e.what(), testing::HasSubstr("logits"));
  }
}

}  // namespace
}  // namespace spillway::arena_test
