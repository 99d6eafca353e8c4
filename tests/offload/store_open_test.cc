// Tests which files of an earlier run are used again, and what the store says about files that are not.
#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "offload/scratch_folder.h"
#include "offload/store_look.h"
#include "tests/offload/support_blob.h"
#include "tests/offload/support_store.h"

namespace spillway::offload::store_open_test {
namespace {

using test::error_of;
using test::says;
using test::SmallStore;
using test::TemporaryFolder;

struct StoreOpen : test::StoreTest {
  i64 bytes_here() { return static_cast<i64>(std::filesystem::file_size(file(0)) + std::filesystem::file_size(file(1))); }
};

TEST_F(StoreOpen, OldWeightsStayAndOnePathIsTheSameCode) {
  run(0, 2, describe());
  StoreDescription other = describe();
  other.paths[0].weight = 5;  // another weight, as if the drive had been measured again
  {
    SmallStore store(engine_, other);
    ASSERT_TRUE(store.store.last_commit());
    EXPECT_EQ(store.objection(1, 0), "");
  }
  const TemporaryFolder scratch;
  const std::filesystem::path alone = scratch / "spillway-small";
  std::filesystem::create_directory(alone);
  const StoreDescription one = test::small_description({{alone, 3}}, Durability::step);
  run(0, 3, one);
  SmallStore store(engine_, one);
  EXPECT_EQ(store.store.last_commit()->generation, 2u);
  EXPECT_EQ(store.objection(2, 0), "");
}

// Shows that a restart finds the persistent state even if it places gradients and activations elsewhere, or has more of them.
TEST_F(StoreOpen, OtherPassingBytesFindTheSameState) {
  run(0, 2, describe());
  const i64 made_bytes = store_bytes(describe());
  for (const i64 more : {40 * kPageBytes, 7 * kPageBytes, -7 * kPageBytes, i64{0}}) {
    StoreDescription other = describe();
    other.data_bytes += more;
    other.passing_bytes += more;
    Traffic traffic;
    NvmeStore store = NvmeStore::open_or_create(engine_, traffic, other);
    ASSERT_TRUE(store.last_commit()) << more << ": " << store.why_new();
    EXPECT_EQ(store.bytes(), made_bytes + more);
    EXPECT_EQ(bytes_here(), made_bytes + more);
    for (size_t b = 0; b < 3; ++b) {
      const auto& blob = test::kSmallBlobs[b];
      const auto held = store.make_blob(blob.what, {0, blob.tiles}, blob.tile_bytes, blob.slots, true);
      test::Buffer bytes(blob.tiles * blob.tile_bytes);
      held->read({0, blob.tiles}, 1, bytes.span()).wait();
      held->verify({0, blob.tiles}, 1, bytes.span());
    }
    const i64 tiles = other.passing_bytes / kPageBytes;
    const auto passing = store.make_blob("passing", {0, tiles}, kPageBytes, 1, false);
    test::Buffer bytes(other.passing_bytes), back(other.passing_bytes);
    test::fill_pattern(bytes.span(), 5);
    test::stamp_and_write(*passing, {0, tiles}, 2, bytes.span()).wait();
    passing->read({0, tiles}, 2, back.span()).wait();
    EXPECT_TRUE(std::ranges::equal(bytes.span(), back.span()));
  }
  SmallStore store(engine_, describe());
  EXPECT_EQ(store.objection(1, 0), "");
}

TEST_F(StoreOpen, WithoutRoomForMorePassingBytesTheStateStays) {
  const test::MountedFolder little("tmpfs", "size=1m");
  if (!little.mounted()) GTEST_SKIP() << little.why();
  const auto wanted = [&](i64 more) {
    StoreDescription description = test::small_description({{little.path()}}, Durability::checkpoint);
    description.data_bytes += more;
    description.passing_bytes += more;
    return description;
  };
  run(0, 2, wanted(0));
  const auto error = error_of([&] { why_new(wanted(4 * kMiB)); });
  EXPECT_EQ(error.code, ErrorCode::refused);
  EXPECT_TRUE(error.says("free disk space") && error.says("--nvme")) << error.text;
  SmallStore store(engine_, wanted(0));
  ASSERT_TRUE(store.store.last_commit()) << store.store.why_new();
  EXPECT_EQ(store.store.bytes(), store_bytes(wanted(0)));
  EXPECT_EQ(store.objection(1, 0), "");
}

TEST_F(StoreOpen, ADamagedLastCommitLeavesTheOneBefore) {
  run(0, 2, describe());
  flip_bit(file(0), kSuperblockOffset + 0 * kPageBytes + 40);  // damages the superblock of commit 2 (generation 1)
  SmallStore store(engine_, describe());
  ASSERT_TRUE(store.store.last_commit());
  EXPECT_EQ(store.store.last_commit()->generation, 0u);
  EXPECT_EQ(store.objection(0, 0), "");
}

TEST_F(StoreOpen, WhatCannotBeUsedIsReplacedAndTheReasonSaid) {
  struct Case {
    const char* why;
    std::function<void()> spoil;
    std::function<void(StoreDescription&)> want = [](StoreDescription&) {};
  };
  const Case cases[] = {
      {"is missing", [&] { std::filesystem::remove(file(1)); }},
      {"fewer than the", [&] { std::filesystem::resize_file(file(1), 40960); }},
      {"shorter than its header", [&] { std::filesystem::resize_file(file(0), 100); }},
      {"never completed", [&] { edit(file(0), 0, kPageBytes, [](std::byte* b) { std::memset(b, 0, kPageBytes); }); }},
      {"is damaged", [&] { flip_bit(file(1), 60); }},
      {"older format", [&] { forge(0, [](StoreHeader& h) { h.version = 0; }); }},
      {"other --nvme paths", [&] { forge(1, [](StoreHeader& h) { h.store_id ^= 1; }); }},
      {"other --nvme paths", [&] { forge(1, [](StoreHeader& h) { h.stripe = 0; }); }},
      {"other --nvme paths", [&] { forge(0, [](StoreHeader& h) { h.stripes = 3; }); }},
      {"striped differently", [&] { forge(1, [](StoreHeader& h) { h.weights[0] = 1; }); }},
      {"invalid stripe weights",
       [&] {
         for (const int f : {0, 1}) forge(f, [](StoreHeader& h) { h.weights[1] = 0; });
       }},
      {"fewer than the",
       [&] {
         for (const int f : {0, 1}) forge(f, [](StoreHeader& h) { h.weights[1] = 2; });
       }},
      {"belongs to run 'small'", [] {}, [](StoreDescription& d) { d.run_id = "other"; }},
      {"another layout", [] {}, [](StoreDescription& d) { d.layout_hash = 8; }},
      {"another layout", [] {}, [](StoreDescription& d) { d.stripe_unit_bytes = kPageBytes; }},
      {"another --durability", [] {}, [](StoreDescription& d) { d.durability = Durability::step; }},
      {"from before a reboot", [] {}, [](StoreDescription& d) { d.boot_id = "another boot"; }},
      {"from before a reboot", [] {}, [](StoreDescription& d) { d.boot_id = ""; }},
      {"the last commit is damaged",
       [&] {
         for (const i64 page : {0, 1}) flip_bit(file(0), kSuperblockOffset + page * kPageBytes + 40);
       }},
      {"damaged checksum table",
       [&] {
         for (const u64 slot : {0, 1}) flip_bit(file(0), table_offset(describe().persistent_tiles, slot) + 4);
       }},
  };
  for (const Case& tested : cases) {
    SCOPED_TRACE(tested.why);
    clear();
    run(0, 2, describe());
    tested.spoil();
    StoreDescription wanted = describe();
    tested.want(wanted);
    {
      SmallStore store(engine_, wanted);
      EXPECT_FALSE(store.store.last_commit());
      EXPECT_TRUE(says(store.store.why_new(), tested.why)) << store.store.why_new();
      EXPECT_FALSE(says(store.store.why_new(), "\n"));
      store.write_generation(30, true);
      store.store.commit(30, "new");
    }
    SmallStore again(engine_, wanted);
    if (!wanted.boot_id.empty()) {
      EXPECT_EQ(again.store.last_commit()->generation, 30u);
      EXPECT_EQ(again.objection(30, 30), "");
    }
  }
}

// Changes bytes of the store's own pages at random, mostly with a matching checksum. The store must open or say why it does
// not.
TEST_F(StoreOpen, OddPagesNeverGoUnnoticed) {
  std::mt19937 random(11);
  run(0, 2, describe());
  std::vector<std::byte> good(static_cast<size_t>(data_offset(describe().persistent_tiles, 0)));
  edit(file(0), 0, std::ssize(good), [&](std::byte* bytes) { std::memcpy(good.data(), bytes, good.size()); });
  int opened = 0, refused = 0;
  for (int round = 0; round < 120; ++round) {
    edit(file(0), 0, std::ssize(good), [&](std::byte* bytes) {
      std::memcpy(bytes, good.data(), good.size());
      for (int i = 0; i < 1 + round % 3; ++i) bytes[random() % 5 * kPageBytes + random() % 400] = static_cast<std::byte>(random());
      for (i64 page = 0; page < 3 && round % 4 != 0; ++page) {  // header and superblocks end with their checksum, which is made to match
        const u32 crc = crc32c({bytes + page * kPageBytes, static_cast<size_t>(kPageBytes - 4)});
        std::memcpy(bytes + (page + 1) * kPageBytes - 4, &crc, 4);
      }
    });
    try {
      SmallStore store(engine_, describe());
      if (store.store.last_commit()) {
        ++opened;
        store.objection(store.store.last_commit()->generation, 0);
        continue;
      }
      EXPECT_FALSE(store.store.why_new().empty());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    }
    ++refused;
    clear();
    run(0, 2, describe());
    edit(file(0), 0, std::ssize(good), [&](std::byte* bytes) { std::memcpy(good.data(), bytes, good.size()); });
  }
  EXPECT_GT(opened, 15);
  EXPECT_GT(refused, 15);
}

TEST_F(StoreOpen, PathsInAnotherOrderAreNotTheirs) {
  run(0, 1, describe());
  StoreDescription swapped = describe();
  std::swap(swapped.paths[0], swapped.paths[1]);
  EXPECT_TRUE(says(why_new(swapped), "is stripe 1 of 2"));
}

// Shows that a store is set aside when a run needs another layout, and that a later run with the first layout gets its store back.
TEST_F(StoreOpen, WhatDoesNotFitIsSetAsideAndComesBackToWhomItFits) {
  run(0, 2, describe());
  const u64 id = whole_header(place(0))->store_id;
  StoreDescription other = describe();
  other.layout_hash = 8;
  {
    SmallStore store(engine_, other);
    EXPECT_FALSE(store.store.last_commit());
    for (const int f : {0, 1}) {
      EXPECT_TRUE(std::filesystem::exists(aside_of(place(f), id) / kStoreFile)) << f;
      EXPECT_TRUE(says(store.store.moved(), aside_of(place(f), id).string())) << store.store.moved();
    }
    store.write_generation(4, true);
    store.store.commit(4, "other");
  }
  for (const TemporaryFolder* scratch : {&first_, &second_}) {
    const std::vector<Orphan> orphans = list_orphans(scratch->path());
    ASSERT_EQ(orphans.size(), 1u);
    EXPECT_TRUE(orphans[0].set_aside);
  }
  {
    SmallStore store(engine_, describe());
    ASSERT_TRUE(store.store.last_commit());
    EXPECT_EQ(store.store.last_commit()->record, "record 1");
    EXPECT_EQ(store.objection(1, 0), "");
    EXPECT_TRUE(says(store.store.moved(), "were restored")) << store.store.moved();
    EXPECT_FALSE(std::filesystem::exists(aside_of(place(0), id)));
  }
  SmallStore store(engine_, other);
  ASSERT_TRUE(store.store.last_commit());
  EXPECT_EQ(store.objection(4, 4), "");
}

// Shows that nothing is lost if a process dies between the two renames of setting a store aside or of bringing it back.
TEST_F(StoreOpen, HalfSetAsideAndHalfBackIsStillWhole) {
  for (const int f : {0, 1}) {
    clear();
    run(0, 2, describe());
    const u64 id = whole_header(place(0))->store_id;
    std::filesystem::rename(file(f), make_aside(place(f), id) / kStoreFile);
    SmallStore store(engine_, describe());
    ASSERT_TRUE(store.store.last_commit()) << f << ": " << store.store.why_new();
    EXPECT_EQ(store.objection(1, 0), "");
  }
}

TEST_F(StoreOpen, PathsInAnotherOrderLoseNothing) {
  run(0, 2, describe());
  StoreDescription swapped = describe();
  std::swap(swapped.paths[0], swapped.paths[1]);
  run(5, 7, swapped);
  SmallStore store(engine_, describe());
  ASSERT_TRUE(store.store.last_commit());
  EXPECT_EQ(store.objection(1, 0), "");
}

TEST_F(StoreOpen, OnePathLessLosesNothing) {
  run(0, 2, describe());
  StoreDescription less = describe();
  less.paths.pop_back();
  run(5, 7, less);
  SmallStore store(engine_, describe());
  ASSERT_TRUE(store.store.last_commit()) << store.store.why_new();
  EXPECT_EQ(store.objection(1, 0), "");
}

TEST_F(StoreOpen, WhatHoldsNoStateIsNotSetAside) {
  { SmallStore store(engine_, describe()); }
  StoreDescription other = describe();
  other.layout_hash = 8;
  { SmallStore store(engine_, other); }
  run(0, 1, other);
  StoreDescription later = describe();
  later.boot_id = "another boot";
  SmallStore store(engine_, later);
  EXPECT_EQ(store.store.moved(), "");
  for (const TemporaryFolder* scratch : {&first_, &second_}) EXPECT_TRUE(list_orphans(scratch->path()).empty());
}

TEST_F(StoreOpen, ANewerFormatIsRefusedAndLeftAlone) {
  run(0, 1, describe());
  forge(0, [](StoreHeader& h) { h.version = kStoreVersion + 1; });
  const auto before = std::filesystem::last_write_time(file(0));
  const auto error = error_of([&] { why_new(describe()); });
  EXPECT_EQ(error.code, ErrorCode::data);
  EXPECT_TRUE(error.says("format 2, newer than this program") && error.says(file(0).string())) << error.text;
  EXPECT_EQ(std::filesystem::last_write_time(file(0)), before);
}

TEST_F(StoreOpen, ARebootDoesNotMatterUnderDurabilityStep) {
  run(0, 3, describe(Durability::step));
  EXPECT_GT(engine_.system().flushes, 2 * 3);
  StoreDescription later = describe(Durability::step);
  later.boot_id = "another boot";
  SmallStore store(engine_, later);
  EXPECT_EQ(store.store.last_commit()->generation, 2u);
  EXPECT_EQ(store.objection(2, 0), "");
}

}  // namespace
}  // namespace spillway::offload::store_open_test
