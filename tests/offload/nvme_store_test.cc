#include "offload/nvme_store.h"

#include <cstring>
#include <functional>
#include <thread>

#include "offload/scratch_folder.h"
#include "tests/offload/support_store.h"

namespace spillway::offload::nvme_store_test {
namespace {

using test::Buffer;
using test::error_of;
using test::same;
using test::says;
using test::SmallStore;
using test::TemporaryFolder;

using Store = test::StoreTest;

TEST_F(Store, AFreshOneSaysWhyAndTakesWhatWasAnnounced) {
  const StoreDescription description = describe();
  SmallStore store(engine_, description);
  EXPECT_FALSE(store.store.last_commit());
  EXPECT_EQ(store.store.why_new(), "there is no earlier store");
  EXPECT_EQ(store.store.bytes(), store_bytes(description));
  EXPECT_EQ(static_cast<i64>(std::filesystem::file_size(file(0)) + std::filesystem::file_size(file(1))), store_bytes(description));
  EXPECT_GT(std::filesystem::file_size(file(0)), std::filesystem::file_size(file(1)));
}

TEST_F(Store, GenerationsComeBackAfterTheProcessDied) {
  run(5, 9, describe());
  SmallStore store(engine_, describe());
  ASSERT_TRUE(store.store.last_commit());
  EXPECT_TRUE(store.store.why_new().empty());
  EXPECT_EQ(store.store.last_commit()->generation, 8u);
  EXPECT_EQ(store.store.last_commit()->record, "record 8");
  EXPECT_EQ(store.objection(8, 5), "");
  store.write_generation(9, false);  // the recovered store can be written to
  EXPECT_EQ(store.objection(8, 5), "");
  store.store.commit(9, "record 9");
  EXPECT_EQ(store.store.last_commit()->generation, 9u);
  EXPECT_EQ(store.objection(9, 5), "");
}

TEST_F(Store, ARecordMayChangeWithoutTheGeneration) {
  run(1, 3, describe());
  {
    SmallStore store(engine_, describe());
    store.store.commit(2, "skipped a step");
    store.store.commit(2, "skipped two");
    store.write_generation(3, false);
  }
  SmallStore store(engine_, describe());
  EXPECT_EQ(store.store.last_commit()->record, "skipped two");
  EXPECT_EQ(store.objection(2, 1), "");
}

TEST_F(Store, ABitFlipIsCaughtNamingFileTileAndGeneration) {
  SmallStore store(engine_, describe());
  store.write_generation(4, true);
  const i64 data = data_offset(describe().persistent_tiles, 0);
  flip_bit(file(0), data + 8192 + 100);  // version 4 of the data is in the first half of the blob, where tile 1 begins with the third page
  Buffer in(5 * 8192);
  store.blobs[0]->read({0, 5}, 4, in.span()).wait();
  store.blobs[0]->verify({0, 1}, 4, in.span(0, 8192));
  const auto error = error_of([&] { store.blobs[0]->verify({0, 5}, 4, in.span()); });
  EXPECT_EQ(error.code, ErrorCode::io);
  for (const std::string& part : {"tile 1 of weights, generation 4, at offset " + std::to_string(data + 8192) + " of " + file(0).string(),
                                  std::string("CRC32C"), std::string("dmesg"), std::string("--nvme"), std::string("last complete step")}) {
    EXPECT_TRUE(error.says(part)) << part << " in " << error.text;
  }
}

// Flips one bit in each page of either file in turn. Exactly the pages of the committed version of the data must be reported as damaged.
TEST_F(Store, EveryPageOfACommittedGenerationIsGuarded) {
  run(0, 2, describe());
  int found = 0;
  for (const int stripe : {0, 1}) {
    const auto bytes = static_cast<i64>(std::filesystem::file_size(file(stripe)));
    for (i64 page = data_offset(describe().persistent_tiles, stripe); page < bytes; page += kPageBytes) {
      flip_bit(file(stripe), page + 77);
      SmallStore store(engine_, describe());
      ASSERT_TRUE(store.store.last_commit());
      if (!store.objection(1, 0).empty()) ++found;
      flip_bit(file(stripe), page + 77);
    }
  }
  // the number of pages of one generation (version of the data); the other version's pages and the gradients have no valid checksums
  EXPECT_EQ(found, 5 * 2 + 3 * 4 + 2 * 1);
  SmallStore store(engine_, describe());
  EXPECT_EQ(store.objection(1, 0), "");
}

TEST_F(Store, WithoutItNothingIsFlushedButBySync) {
  SmallStore store(engine_, describe());
  store.write_generation(0, true);
  store.store.commit(0, "");
  EXPECT_EQ(engine_.system().flushes, 0);
  store.store.sync();
  EXPECT_EQ(engine_.system().flushes, 2);
}

TEST_F(Store, AnInvalidatedOneHoldsNothing) {
  {
    SmallStore store(engine_, describe());
    for (const u64 g : {0, 1}) {
      store.write_generation(g, g == 0);
      store.store.commit(g, "");
    }
    store.store.invalidate();
    EXPECT_FALSE(store.store.last_commit());
    store.write_generation(57, true);  // the new state, as if it came from a checkpoint
  }
  EXPECT_TRUE(says(why_new(describe()), "no committed step"));
  SmallStore store(engine_, describe());
  engine_.system().fail_at = 0;
  engine_.system().failures = 100;
  store.store.invalidate();  // invalidate() must not throw, although the drive fails
}

TEST_F(Store, StampsAndCommitsAreHeldToTheirPromises) {
  SmallStore store(engine_, describe());
  Buffer bytes(8192);
  Blob& weights = *store.blobs[0];
  const auto code = [](const std::function<void()>& action) { return error_of(action).code; };
  EXPECT_EQ(code([&] { weights.write({0, 1}, 0, bytes.span()); }), ErrorCode::bug);
  EXPECT_EQ(code([&] { weights.verify({0, 1}, 0, bytes.span()); }), ErrorCode::bug);
  weights.stamp({0, 1}, 0, bytes.span());
  EXPECT_EQ(code([&] { weights.write({0, 1}, 2, bytes.span()); }), ErrorCode::bug);
  EXPECT_EQ(code([&] { weights.write({1, 2}, 0, bytes.span()); }), ErrorCode::bug);
  EXPECT_EQ(code([&] { weights.stamp({4, 6}, 0, Buffer(2 * 8192).span()); }), ErrorCode::bug);
  const auto early = error_of([&] { store.store.commit(0, ""); });
  EXPECT_TRUE(early.says("tile 1 of weights was not written for generation 0")) << early.text;
  store.write_generation(0, true);
  EXPECT_EQ(code([&] { store.store.commit(0, std::string(kMaxRecordBytes + 1, 'x')); }), ErrorCode::bug);
  store.store.commit(0, std::string(kMaxRecordBytes, 'x'));
  EXPECT_EQ(store.store.last_commit()->record.size(), 3072u);
  EXPECT_EQ(code([&] { store.store.commit(2, ""); }), ErrorCode::bug);
  // an error, because it would overwrite version 0 of the data
  EXPECT_EQ(code([&] { weights.stamp({0, 1}, 2, bytes.span()); }), ErrorCode::bug);
  EXPECT_EQ(code([&] { store.blobs[2]->stamp({0, 1}, 1, bytes.span(0, 4096)); }), ErrorCode::bug);  // error: frozen weights
  store.blobs[3]->stamp({0, 1}, 2, bytes.span());                                                   // gradients may be overwritten
  EXPECT_EQ(store.objection(0, 0), "");
}

TEST_F(Store, BlobsBeyondTheDescriptionAreBugs) {
  SmallStore full(engine_, describe());
  const auto code = [](NvmeStore& store, i64 tiles, i64 bytes, int slots, bool persistent) {
    return error_of([&] { store.make_blob("more", {0, tiles}, bytes, slots, persistent); }).code;
  };
  EXPECT_EQ(code(full.store, 1, 4096, 1, false), ErrorCode::bug);
  EXPECT_EQ(full.store.make_blob("none", {0, 0}, 4096, 1, false)->bytes(), 0);
  TemporaryFolder elsewhere;
  StoreDescription description = test::small_description({{elsewhere.path()}}, Durability::checkpoint);
  Traffic traffic;
  NvmeStore store = NvmeStore::open_or_create(engine_, traffic, description);
  EXPECT_EQ(code(store, 1, 512, 1, true), ErrorCode::bug);
  EXPECT_EQ(code(store, 1, 4096, 2, false), ErrorCode::bug);
  EXPECT_EQ(code(store, 1, 4096, 3, true), ErrorCode::bug);
  EXPECT_EQ(code(store, description.persistent_tiles + 1, 4096, 1, true), ErrorCode::bug);
  EXPECT_EQ(code(store, 1, 4096, 1, false), ErrorCode::bug);  // an error, because this range belongs to the persistent blobs
}

TEST_F(Store, SenselessDescriptionsAreRefused) {
  StoreDescription twice = describe();
  twice.paths[1].folder = place(0) / ".";
  EXPECT_EQ(error_of([&] { why_new(twice); }).code, ErrorCode::usage);
  StoreDescription weightless = describe();
  weightless.paths[1].weight = 0;
  EXPECT_EQ(error_of([&] { why_new(weightless); }).code, ErrorCode::bug);
  StoreDescription pathless = describe();
  pathless.paths.clear();
  EXPECT_EQ(error_of([&] { why_new(pathless); }).code, ErrorCode::bug);
}

TEST_F(Store, BytesAreCountedOnceAndAnErrorOfOneStripeIsTheBlobs) {
  SmallStore store(engine_, describe());
  const i64 generation = 5 * 8192 + 3 * 16384 + 2 * 4096 + 4 * 8192;
  store.write_generation(0, true);
  EXPECT_EQ(store.traffic.written_bytes[2], generation);
  Buffer in(3 * 16384);
  store.blobs[1]->read({0, 3}, 0, in.span(), {.priority = Priority::urgent}).wait();
  EXPECT_EQ(store.traffic.read_bytes[2], 3 * 16384);
  engine_.system().transfers = 0;
  engine_.system().fail_at = 1;
  const Event event = store.blobs[1]->read({0, 3}, 0, in.span());
  EXPECT_EQ(error_of([&] { event.wait(); }).code, ErrorCode::io);
  EXPECT_GT(engine_.system().transfers, 2);  // all transfers have ended by now
  EXPECT_EQ(engine_.system().at_work, 0);
}

TEST_F(Store, AFailedCommitLeavesTheLastOne) {
  for (i64 transfer = 0; transfer < 2; ++transfer) {
    run(0, 2, describe());
    {
      SmallStore store(engine_, describe());
      store.write_generation(2, false);
      engine_.system().transfers = 0;
      engine_.system().fail_at = transfer;
      EXPECT_EQ(error_of([&] { store.store.commit(2, "lost"); }).code, ErrorCode::io);
      engine_.system().fail_at = -1;
      EXPECT_EQ(store.store.last_commit()->generation, 1u);
      store.store.commit(1, "still here");
    }
    SmallStore store(engine_, describe());
    EXPECT_EQ(store.store.last_commit()->record, "still here");
    EXPECT_EQ(store.objection(1, 0), "");
    store.store.invalidate();
  }
}

TEST_F(Store, ManyThreadsMoveTheirTiles) {
  constexpr i64 kTiles = 64, kTile = 64 * kKiB;
  StoreDescription description = describe();
  description.data_bytes = 2 * kTiles * kTile;
  description.passing_bytes = 0;
  description.persistent_tiles = kTiles;
  description.stripe_unit_bytes = 40 * kKiB;
  Traffic traffic;
  NvmeStore store = NvmeStore::open_or_create(engine_, traffic, description);
  const auto blob = store.make_blob("state", {0, kTiles}, kTile, 2, true);
  const auto step = [&](u64 g, i64 thread) {
    Buffer bytes(kTile);
    for (i64 t = thread; t < kTiles; t += 4) {
      std::memset(bytes.data(), 0, kTile);
      if (g > 0) {
        blob->read({t, t + 1}, g - 1, bytes.span()).wait();
        blob->verify({t, t + 1}, g - 1, bytes.span());
      }
      for (std::byte& byte : bytes.span()) byte = static_cast<std::byte>(static_cast<int>(byte) + t);
      blob->stamp({t, t + 1}, g, bytes.span());
      blob->write({t, t + 1}, g, bytes.span()).wait();
    }
  };
  for (u64 g = 0; g < 5; ++g) {
    std::vector<std::thread> threads;
    for (i64 i = 0; i < 4; ++i) threads.emplace_back(step, g, i);
    for (std::thread& thread : threads) thread.join();
    store.commit(g, "");
  }
  Buffer bytes(kTile);
  for (i64 t = 0; t < kTiles; ++t) {
    blob->read({t, t + 1}, 4, bytes.span()).wait();
    blob->verify({t, t + 1}, 4, bytes.span());
    ASSERT_EQ(bytes.span().back(), static_cast<std::byte>(5 * t));
  }
}

TEST_F(Store, AFullFilesystemRefusesAndKeepsNothing) {
  const test::MountedFolder small("tmpfs", "size=2m");
  if (!small.mounted()) GTEST_SKIP() << small.why();
  StoreDescription description = describe();
  description.data_bytes = 6 * kMiB;
  description.paths[1].folder = small.path();
  const auto error = error_of([&] { why_new(description); });
  EXPECT_EQ(error.code, ErrorCode::refused);
  EXPECT_TRUE(error.says("free disk space") && error.says("--nvme")) << error.text;
  EXPECT_TRUE(std::filesystem::is_empty(place(0)));
  EXPECT_TRUE(std::filesystem::is_empty(small.path()));
}

TEST_F(Store, AKeptFolderIsFoundByTheNextRunAndListedUntilThen) {
  const auto in = [](const ScratchFolder& folder) { return test::small_description({{folder.path()}}, Durability::checkpoint); };
  {
    ScratchFolder folder(first_.path(), "r");
    run(0, 2, in(folder));
    folder.keep();
    EXPECT_EQ(error_of([&] { ScratchFolder(first_.path(), "r"); }).code, ErrorCode::usage);
  }
  const auto orphans = list_orphans(first_.path());
  ASSERT_EQ(orphans.size(), 1u);
  EXPECT_GE(orphans[0].bytes, describe().data_bytes);
  {
    ScratchFolder folder(first_.path(), "r");
    folder.give_up();
    SmallStore store(engine_, in(folder));
    EXPECT_EQ(store.store.last_commit()->generation, 1u);
    EXPECT_EQ(store.objection(1, 0), "");
  }
  EXPECT_FALSE(std::filesystem::exists(first_ / "spillway-r"));
}

}  // namespace
}  // namespace spillway::offload::nvme_store_test
