#include "offload/blob.h"

#include <optional>

#include "tests/offload/support_blob.h"

namespace spillway::offload::blob_test {
namespace {

using test::Buffer;
using test::error_of;
using test::FaultySystem;
using test::fill_pattern;
using test::same;
using test::stamp_and_write;

constexpr i64 kTile = 64 * kKiB, kTiles = 7;

// Holds a blob in the given tier, with `slots` slots: each has room for one generation (version of the content).
struct World {
  explicit World(Tier tier, int slots, i64 first = 0) {
    if (tier == Tier::nvme) {
      nvme.emplace(kTiles, kTile, slots, traffic, IoEngineKind::pread, first);
    } else {
      memory = make_memory_blob(tier, pool, "blob", {first, first + kTiles}, kTile, slots, traffic);
    }
  }
  Blob& blob() { return nvme ? nvme->blob() : *memory; }
  i64 read_bytes(Tier tier) const { return traffic.read_bytes[static_cast<size_t>(tier)]; }
  i64 written_bytes(Tier tier) const { return traffic.written_bytes[static_cast<size_t>(tier)]; }

  MemoryPool pool{"host", 2 * kTiles* kTile + 4096};
  Traffic traffic;
  std::optional<test::StoreBlob> nvme;
  std::unique_ptr<Blob> memory;
};

class Blobs : public testing::TestWithParam<Tier> {};
INSTANTIATE_TEST_SUITE_P(All, Blobs, testing::Values(Tier::device, Tier::host, Tier::nvme),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(Blobs, GenerationsInTwoSlotsLeaveEachOtherAlone) {
  World world(GetParam(), 2);
  Buffer old(kTiles * kTile), next(kTiles * kTile), in(kTiles * kTile);
  fill_pattern(old.span(), 1);
  fill_pattern(next.span(), 2);
  const TileRange all{0, kTiles};
  stamp_and_write(world.blob(), all, 6, old.span()).wait();
  for (i64 t = 0; t < kTiles; ++t) {  // Version (generation) 7 of the data is written tile by tile while version 6 is read as a whole.
    stamp_and_write(world.blob(), {t, t + 1}, 7, next.span(t * kTile, kTile)).wait();
    world.blob().read(all, 6, in.span()).wait();
    ASSERT_TRUE(same(in.span(), old.span())) << "tile " << t;
  }
  world.blob().read(all, 7, in.span()).wait();
  EXPECT_TRUE(same(in.span(), next.span()));
  stamp_and_write(world.blob(), {2, 3}, 8, next.span(0, kTile)).wait();  // version 8 of the data overwrites version 6
  world.blob().read({2, 3}, 6, in.span(0, kTile)).wait();
  EXPECT_TRUE(same(in.span(0, kTile), next.span(0, kTile)));
}

TEST_P(Blobs, OneSlotHoldsEveryGeneration) {
  World world(GetParam(), 1);
  Buffer out(kTile), in(kTile);
  fill_pattern(out.span(), 3);
  stamp_and_write(world.blob(), {kTiles - 1, kTiles}, 41, out.span()).wait();
  world.blob().read({kTiles - 1, kTiles}, 42, in.span()).wait();
  EXPECT_TRUE(same(in.span(), out.span()));
}

TEST_P(Blobs, CountsEachByteOnceInItsTier) {
  World world(GetParam(), 2);
  if (world.nvme) world.nvme->system().most_requested_bytes = 8192;  // a transfer that is resumed still counts as one transfer
  Buffer buffer(3 * kTile);
  stamp_and_write(world.blob(), {0, 3}, 0, buffer.span()).wait();
  stamp_and_write(world.blob(), {2, 3}, 1, buffer.span(0, kTile)).wait();
  world.blob().read({1, 3}, 0, buffer.span(0, 2 * kTile)).wait();
  world.blob().view({0, 1}, 0);
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const bool counts = tier == GetParam() && tier != Tier::device;  // moves within the device do not count as traffic
    EXPECT_EQ(world.written_bytes(tier), counts ? 4 * kTile : 0);
    EXPECT_EQ(world.read_bytes(tier), counts ? 2 * kTile : 0);
  }
}

TEST_P(Blobs, RangesAndSizesAreChecked) {
  World world(GetParam(), 1);
  Buffer buffer(2 * kTile);
  const auto read_code = [&](TileRange range, i64 bytes) {
    return error_of([&] { world.blob().read(range, 0, buffer.span(0, bytes)); }).code;
  };
  EXPECT_EQ(read_code({-1, 0}, kTile), ErrorCode::bug);
  EXPECT_EQ(read_code({kTiles - 1, kTiles + 1}, 2 * kTile), ErrorCode::bug);
  EXPECT_EQ(read_code({2, 1}, 0), ErrorCode::bug);
  EXPECT_EQ(read_code({0, 2}, kTile), ErrorCode::bug);
  EXPECT_EQ(error_of([&] { stamp_and_write(world.blob(), {0, 1}, 0, buffer.span()); }).code, ErrorCode::bug);
  world.blob().read({3, 3}, 0, {}).wait();
  EXPECT_EQ(world.read_bytes(GetParam()), 0);
}

TEST_P(Blobs, APartKeepsTheNumbersOfItsTiles) {
  constexpr i64 kFirst = 40;
  World world(GetParam(), 2, kFirst);
  EXPECT_EQ(world.blob().held(), (TileRange{kFirst, kFirst + kTiles}));
  Buffer out(kTiles * kTile), in(2 * kTile);
  fill_pattern(out.span(), 5);
  const TileRange last{kFirst + kTiles - 2, kFirst + kTiles};
  stamp_and_write(world.blob(), world.blob().held(), 3, out.span()).wait();
  world.blob().read(last, 3, in.span()).wait();
  world.blob().verify(last, 3, in.span());
  EXPECT_TRUE(same(in.span(), out.span((kTiles - 2) * kTile, 2 * kTile)));
  for (const TileRange outside : {TileRange{kFirst - 1, kFirst + 1}, TileRange{0, 2}, TileRange{last.begin + 1, last.end + 1}})
    EXPECT_EQ(error_of([&] { world.blob().read(outside, 3, in.span()); }).code, ErrorCode::bug);
}

TEST(MemoryBlob, IsSeenInPlace) {
  World world(Tier::host, 2);
  Buffer out(kTile);
  fill_pattern(out.span(), 4);
  stamp_and_write(world.blob(), {1, 2}, 1, out.span()).wait();
  EXPECT_TRUE(same(world.blob().view({1, 2}, 1), out.span()));
  EXPECT_FALSE(same(world.blob().view({1, 2}, 0), out.span()));
  EXPECT_EQ(world.pool.used_bytes(), 2 * kTiles * kTile);
  world.memory.reset();
  EXPECT_EQ(world.pool.used_bytes(), 0);
}

TEST(MemoryBlob, TakesItsMemoryFromTheBudget) {
  MemoryPool pool("host", kTile, "raise --host-memory");
  Traffic traffic;
  const auto error = error_of([&] { make_memory_blob(Tier::host, pool, "moments", {0, 2}, kTile, 1, traffic); });
  EXPECT_EQ(error.code, ErrorCode::refused);
  EXPECT_TRUE(error.says("moments")) << error.text;
}

TEST(StoreBlob, HasNoBytesInMemoryAndPassesErrorsOn) {
  World world(Tier::nvme, 2);
  EXPECT_TRUE(world.blob().view({0, 1}, 0).empty());
  FaultySystem& system = world.nvme->system();
  system.fail_at = system.transfers.load();
  Buffer buffer(kTile);
  const Event event = stamp_and_write(world.blob(), {0, 1}, 0, buffer.span());
  EXPECT_EQ(error_of([&] { event.wait(); }).code, ErrorCode::io);
}

}  // namespace
}  // namespace spillway::offload::blob_test
