#include "offload/nvme_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>

#include "offload/crc32c.h"
#include "offload/run_folder.h"
#include "tests/offload/support_store.h"
#include "tests/support/faulty_engine.h"

namespace spillway::offload {
namespace {

using test::Buffer;
using test::error_of;
using test::same;
using test::SmallStore;
using test::TemporaryFolder;

class Store : public testing::Test {
 protected:
  StoreDescription describe(Durability durability = Durability::checkpoint) {
    return test::small_description({{first_.path(), 2}, {second_.path(), 1}}, durability);
  }
  // A run that wrote and committed generations [begin, end), and died.
  void run(u64 begin, u64 end, const StoreDescription& description) {
    SmallStore store(engine_, description);
    for (u64 g = begin; g < end; ++g) {
      store.write_generation(g, g == begin);
      store.store.commit(g, "record " + std::to_string(g));
    }
  }
  std::string why_new(const StoreDescription& description) {
    Traffic traffic;
    return NvmeStore::open_or_create(engine_, traffic, description).why_new();
  }
  std::filesystem::path file(int stripe) const { return (stripe == 0 ? first_ : second_) / kStoreFile; }
  // Changes bytes of a file behind the store's back.
  static void edit(const std::filesystem::path& path, i64 offset, i64 bytes, const std::function<void(std::byte*)>& change) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    std::vector<std::byte> data(static_cast<size_t>(bytes));
    ASSERT_EQ(::pread(descriptor, data.data(), data.size(), offset), bytes);
    change(data.data());
    ASSERT_EQ(::pwrite(descriptor, data.data(), data.size(), offset), bytes);
    ::close(descriptor);
  }
  static void flip_bit(const std::filesystem::path& path, i64 offset) {
    edit(path, offset, 1, [](std::byte* byte) { *byte ^= std::byte{8}; });
  }
  // A header that its writer meant.
  void forge(int stripe, const std::function<void(StoreHeader&)>& change) {
    edit(file(stripe), 0, kPageBytes, [&](std::byte* bytes) {
      StoreHeader header;
      std::memcpy(&header, bytes, sizeof header);
      change(header);
      header.crc = crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(StoreHeader, crc)));
      std::memcpy(bytes, &header, sizeof header);
    });
  }

  TemporaryFolder first_, second_;
  test::FaultyEngine engine_;
};

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Store, AFreshOneSaysWhyAndTakesWhatWasAnnounced) {
  const StoreDescription description = describe();
  SmallStore store(engine_, description);
  EXPECT_FALSE(store.store.last_commit());
  EXPECT_EQ(store.store.why_new(), "no earlier store is there");
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
  store.write_generation(9, false);  // and it goes on
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

TEST_F(Store, OldWeightsStayAndOnePathIsTheSameCode) {
  run(0, 2, describe());
  StoreDescription other = describe();
  other.paths[0].weight = 5;  // measured again
  {
    SmallStore store(engine_, other);
    ASSERT_TRUE(store.store.last_commit());
    EXPECT_EQ(store.objection(1, 0), "");
  }
  TemporaryFolder alone;
  const StoreDescription one = test::small_description({{alone.path(), 3}}, Durability::step);
  run(0, 3, one);
  SmallStore store(engine_, one);
  EXPECT_EQ(store.store.last_commit()->generation, 2u);
  EXPECT_EQ(store.objection(2, 0), "");
}

TEST_F(Store, ABitFlipIsCaughtNamingFileTileAndGeneration) {
  SmallStore store(engine_, describe());
  store.write_generation(4, true);
  const i64 data = data_offset(describe().persistent_tiles, 0);
  flip_bit(file(0), data + 8192 + 100);  // generation 4 lies in slot 0, tile 1 begins with the third page
  Buffer in(5 * 8192);
  store.blobs[0]->read({0, 5}, 4, in.span()).wait();
  store.blobs[0]->verify({0, 1}, 4, in.span(0, 8192));
  const auto error = error_of([&] { store.blobs[0]->verify({0, 5}, 4, in.span()); });
  EXPECT_EQ(error.code, ErrorCode::io);
  for (const std::string& part : {"tile 1 of weights, generation 4, at offset " + std::to_string(data + 8192) + " of " + file(0).string(),
                                  std::string("CRC32C"), std::string("dmesg"), std::string("--nvme"), std::string("last checkpoint")}) {
    EXPECT_TRUE(error.says(part)) << part << " in " << error.text;
  }
}

// A bit flips in each page of either file in turn.
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
  EXPECT_EQ(found, 5 * 2 + 3 * 4 + 2 * 1);  // pages of one generation; the other slot and the gradients are nobody's business
  SmallStore store(engine_, describe());
  EXPECT_EQ(store.objection(1, 0), "");
}

TEST_F(Store, ADamagedLastCommitLeavesTheOneBefore) {
  run(0, 2, describe());
  flip_bit(file(0), kSuperblockOffset + 0 * kPageBytes + 40);  // commit 2, of generation 1
  SmallStore store(engine_, describe());
  ASSERT_TRUE(store.store.last_commit());
  EXPECT_EQ(store.store.last_commit()->generation, 0u);
  EXPECT_EQ(store.objection(0, 0), "");
}

TEST_F(Store, WhatCannotBeUsedIsReplacedAndTheReasonSaid) {
  struct Case {
    const char* why;
    std::function<void()> spoil;
    std::function<void(StoreDescription&)> want = [](StoreDescription&) {};
  };
  const Case cases[] = {
      {"is missing", [&] { std::filesystem::remove(file(1)); }},
      {"bytes instead of", [&] { std::filesystem::resize_file(file(1), 40960); }},
      {"shorter than its header", [&] { std::filesystem::resize_file(file(0), 100); }},
      {"never completed", [&] { edit(file(0), 0, kPageBytes, [](std::byte* b) { std::memset(b, 0, kPageBytes); }); }},
      {"is damaged", [&] { flip_bit(file(1), 60); }},
      {"older format", [&] { forge(0, [](StoreHeader& h) { h.version = 0; }); }},
      {"another set of --nvme paths", [&] { forge(1, [](StoreHeader& h) { h.store_id ^= 1; }); }},
      {"another set of --nvme paths", [&] { forge(1, [](StoreHeader& h) { h.stripe = 0; }); }},
      {"another set of --nvme paths", [&] { forge(0, [](StoreHeader& h) { h.stripes = 3; }); }},
      {"striped unlike", [&] { forge(1, [](StoreHeader& h) { h.weights[0] = 1; }); }},
      {"senseless weights",
       [&] {
         for (const int f : {0, 1}) forge(f, [](StoreHeader& h) { h.weights[1] = 0; });
       }},
      {"bytes instead of",
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
    for (const int f : {0, 1}) std::filesystem::remove(file(f));
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

TEST_F(Store, PathsInAnotherOrderAreNotTheirs) {
  run(0, 1, describe());
  StoreDescription swapped = describe();
  std::swap(swapped.paths[0], swapped.paths[1]);
  EXPECT_TRUE(says(why_new(swapped), "is stripe 1 of 2 of another set"));
}

TEST_F(Store, ANewerFormatIsRefusedAndLeftAlone) {
  run(0, 1, describe());
  forge(0, [](StoreHeader& h) { h.version = kStoreVersion + 1; });
  const auto before = std::filesystem::last_write_time(file(0));
  const auto error = error_of([&] { why_new(describe()); });
  EXPECT_EQ(error.code, ErrorCode::data);
  EXPECT_TRUE(error.says("format 2, newer than this program") && error.says(file(0).string())) << error.text;
  EXPECT_EQ(std::filesystem::last_write_time(file(0)), before);
}

TEST_F(Store, ARebootDoesNotMatterUnderDurabilityStep) {
  run(0, 3, describe(Durability::step));
  EXPECT_GT(engine_.system().flushes, 2 * 3);
  StoreDescription later = describe(Durability::step);
  later.boot_id = "another boot";
  SmallStore store(engine_, later);
  EXPECT_EQ(store.store.last_commit()->generation, 2u);
  EXPECT_EQ(store.objection(2, 0), "");
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
    store.write_generation(57, true);  // from a checkpoint
  }
  EXPECT_TRUE(says(why_new(describe()), "holds no commit"));
  SmallStore store(engine_, describe());
  engine_.system().fail_at = 0;
  engine_.system().failures = 100;
  store.store.invalidate();  // a drive that fails is no reason to fall over
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
  EXPECT_EQ(code([&] { weights.stamp({0, 1}, 2, bytes.span()); }), ErrorCode::bug);                 // over generation 0
  EXPECT_EQ(code([&] { store.blobs[2]->stamp({0, 1}, 1, bytes.span(0, 4096)); }), ErrorCode::bug);  // frozen
  store.blobs[3]->stamp({0, 1}, 2, bytes.span());                                                   // gradients come and go
  EXPECT_EQ(store.objection(0, 0), "");
}

TEST_F(Store, BlobsBeyondTheDescriptionAreBugs) {
  SmallStore full(engine_, describe());
  const auto code = [](NvmeStore& store, i64 tiles, i64 bytes, int slots, bool persistent) {
    return error_of([&] { store.make_blob("more", tiles, bytes, slots, persistent); }).code;
  };
  EXPECT_EQ(code(full.store, 1, 4096, 1, false), ErrorCode::bug);
  EXPECT_EQ(full.store.make_blob("none", 0, 4096, 1, false)->bytes(), 0);
  TemporaryFolder elsewhere;
  StoreDescription description = test::small_description({{elsewhere.path()}}, Durability::checkpoint);
  Traffic traffic;
  NvmeStore store = NvmeStore::open_or_create(engine_, traffic, description);
  EXPECT_EQ(code(store, 1, 512, 1, true), ErrorCode::bug);
  EXPECT_EQ(code(store, 1, 4096, 2, false), ErrorCode::bug);
  EXPECT_EQ(code(store, 1, 4096, 3, true), ErrorCode::bug);
  EXPECT_EQ(code(store, description.persistent_tiles + 1, 4096, 1, true), ErrorCode::bug);
}

TEST_F(Store, SenselessDescriptionsAreRefused) {
  StoreDescription twice = describe();
  twice.paths[1].folder = first_ / ".";
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
  store.blobs[1]->read({0, 3}, 0, in.span(), Priority::urgent).wait();
  EXPECT_EQ(store.traffic.read_bytes[2], 3 * 16384);
  engine_.system().transfers = 0;
  engine_.system().fail_at = 1;
  const Event event = store.blobs[1]->read({0, 3}, 0, in.span());
  EXPECT_EQ(error_of([&] { event.wait(); }).code, ErrorCode::io);
  EXPECT_GT(engine_.system().transfers, 2);  // all of them are over
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
  description.persistent_tiles = kTiles;
  description.stripe_unit_bytes = 40 * kKiB;
  Traffic traffic;
  NvmeStore store = NvmeStore::open_or_create(engine_, traffic, description);
  const auto blob = store.make_blob("state", kTiles, kTile, 2, true);
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
  EXPECT_TRUE(error.says("wanted") && error.says("--nvme")) << error.text;
  EXPECT_TRUE(first_.empty());
  EXPECT_TRUE(std::filesystem::is_empty(small.path()));
}

TEST_F(Store, AKeptFolderIsFoundByTheNextRunAndListedUntilThen) {
  const auto in = [](const RunFolder& folder) { return test::small_description({{folder.path()}}, Durability::checkpoint); };
  {
    RunFolder folder(first_.path(), "r");
    run(0, 2, in(folder));
    folder.keep();
    EXPECT_EQ(error_of([&] { RunFolder(first_.path(), "r"); }).code, ErrorCode::usage);
  }
  const auto orphans = list_orphans(first_.path());
  ASSERT_EQ(orphans.size(), 1u);
  EXPECT_GE(orphans[0].bytes, describe().data_bytes);
  {
    const RunFolder folder(first_.path(), "r");
    SmallStore store(engine_, in(folder));
    EXPECT_EQ(store.store.last_commit()->generation, 1u);
    EXPECT_EQ(store.objection(1, 0), "");
  }
  EXPECT_TRUE(first_.empty());
}

}  // namespace
}  // namespace spillway::offload
