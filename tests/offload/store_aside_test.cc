// Tests starts that do not continue from the files at a store's paths. A file that may hold a commit must never be deleted.
#include "offload/store_aside.h"

#include <fstream>
#include <iterator>

#include "offload/scratch_folder.h"
#include "offload/store_files.h"
#include "offload/store_look.h"
#include "tests/offload/support_store.h"

namespace spillway::offload::store_aside_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::says;
using test::SmallStore;
using test::TemporaryFolder;

class StoreAside : public test::StoreTest {
 protected:
  static std::string bytes_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Returns all store files on both scratch paths, by path.
  std::map<std::string, std::string> all_files() const {
    std::map<std::string, std::string> all;
    for (const TemporaryFolder* scratch : {&first_, &second_}) {
      for (const auto& entry : fs::recursive_directory_iterator(scratch->path())) {
        if (entry.path().filename() == kStoreFile) all[entry.path()] = bytes_of(entry.path());
      }
    }
    return all;
  }
  // Returns true if a store file with these bytes still exists, under any name.
  bool is_kept(const std::string& bytes) const {
    const auto all = all_files();
    return std::ranges::any_of(all, [&](const auto& file) { return file.second == bytes; });
  }
  size_t orphans() const { return list_orphans(first_.path()).size() + list_orphans(second_.path()).size(); }
  void zero(const fs::path& path, i64 offset, i64 bytes) {
    edit(path, offset, bytes, [&](std::byte* at) { std::memset(at, 0, static_cast<size_t>(bytes)); });
  }
  // Returns stores on both paths, on one of them, and on both in another order; each to be continued, and each to begin anew.
  std::vector<StoreDescription> descriptions() {
    std::vector<StoreDescription> all(4, describe());
    all[1].paths.erase(all[1].paths.begin());
    all[2].paths.pop_back();
    std::swap(all[3].paths[0], all[3].paths[1]);
    for (const StoreDescription& once : std::vector(all)) all.emplace_back(once).anew = true;
    return all;
  }
};

TEST_F(StoreAside, ANewerProgramsFileOnAnyPathIsRefusedAndNothingMoves) {
  const std::function<void(int)> others[] = {
      [](int) {},
      [&](int other) { fs::remove(file(other)); },
      [&](int other) { fs::resize_file(file(other), 0); },
      [&](int other) { flip_bit(file(other), 60); },
      [&](int other) { forge(other, [](StoreHeader& h) { h.version = kStoreVersion + 1; }); },
      [&](int) { zero(file(0), kSuperblockOffset, kSuperblocks * kPageBytes); },
  };
  for (const int newer : {0, 1}) {
    for (const auto& change : others) {
      clear();
      run(0, 2, describe());
      forge(newer, [](StoreHeader& h) { h.version = kStoreVersion + 1; });
      change(1 - newer);
      const auto before = all_files();
      for (const StoreDescription& description : descriptions()) {
        if (std::ranges::none_of(description.paths, [&](const StripePath& p) { return p.folder == place(newer); })) continue;
        const auto error = error_of([&] { why_new(description); });
        EXPECT_EQ(error.code, ErrorCode::data);
        EXPECT_TRUE(error.says("newer than this program")) << error.text;
        EXPECT_TRUE(all_files() == before);
        EXPECT_EQ(orphans(), 0u);
      }
    }
  }
}

TEST_F(StoreAside, ADamagedHeaderDoesNotCostTheCommit) {
  for (const int stripe : {0, 1}) {
    for (const i64 offset : {i64{2}, i64{9}, i64{offsetof(StoreHeader, layout_hash)}, i64{2000}, i64{offsetof(StoreHeader, crc)}}) {
      SCOPED_TRACE(offset);
      clear();
      run(0, 2, describe());
      flip_bit(file(stripe), offset);
      const auto before = all_files();
      {
        SmallStore store(engine_, describe());
        EXPECT_FALSE(store.store.last_commit());
        EXPECT_TRUE(says(store.store.moved(), "set aside as")) << store.store.moved();
        EXPECT_FALSE(store.store.why_new().empty());
      }
      for (const auto& [path, bytes] : before) EXPECT_TRUE(is_kept(bytes)) << path;
      EXPECT_EQ(orphans(), 2u);
      const u64 id = asides_of(place(stripe)).at(0);
      flip_bit(aside_of(place(stripe), id) / kStoreFile, offset);
      SmallStore store(engine_, describe());
      ASSERT_TRUE(store.store.last_commit());
      EXPECT_EQ(store.objection(1, 0), "");
    }
  }
}

TEST_F(StoreAside, WhateverMayHoldACommitIsKept) {
  const std::function<void()> changes[] = {
      [&] { flip_bit(file(0), offsetof(StoreHeader, store_id)); },
      [&] { flip_bit(file(1), offsetof(StoreHeader, store_id)); },
      [&] { zero(file(0), 0, kPageBytes); },
      [&] { zero(file(1), 0, kPageBytes); },
      [&] { zero(file(1), 0, 3 * kPageBytes); },
      [&] { fs::resize_file(file(0), 4 * kPageBytes); },
      [&] { fs::resize_file(file(1), 100); },
      [&] {
        for (const i64 page : {0, 1}) flip_bit(file(0), kSuperblockOffset + page * kPageBytes + 40);
      },
      [&] {
        for (const int f : {0, 1}) forge(f, [](StoreHeader& h) { h.version = 0; });
        zero(file(0), kSuperblockOffset, kSuperblocks * kPageBytes);
      },
      [&] { std::ofstream(file(0)) << "notes"; },
  };
  for (size_t c = 0; c < std::size(changes); ++c) {
    for (const StoreDescription& description : descriptions()) {
      SCOPED_TRACE(c);
      clear();
      run(0, 2, describe());
      changes[c]();
      const auto before = all_files();
      for (const std::string& moved : {std::string("set aside as"), std::string()}) {
        offload::Traffic traffic;
        const NvmeStore store = NvmeStore::open_or_create(engine_, traffic, description);
        EXPECT_FALSE(store.last_commit());
        EXPECT_TRUE(says(store.moved(), moved)) << store.moved();
      }
      for (const auto& [path, bytes] : before) EXPECT_TRUE(is_kept(bytes)) << path;
    }
  }
}

TEST_F(StoreAside, WhatNobodyWroteToAndAStoreWithoutACommitAreReplaced) {
  const std::function<void()> leave[] = {
      [&] { std::ofstream(file(0)).close(); },
      [&] { ScratchFile::create(file(1), kMiB, false); },
      [&] { why_new(describe()); },
      [&] {  // the process dies between writing the two headers
        why_new(describe());
        ScratchFile::create(file(1), kMiB, false);
      },
  };
  for (size_t l = 0; l < std::size(leave); ++l) {
    for (const StoreDescription& description : descriptions()) {
      clear();
      leave[l]();
      for (const auto& path : {file(0), file(1)}) {
        if (fs::exists(path)) fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
      }
      const bool whole_second_alone = l == 2 && description.paths.size() == 1 && description.paths[0].folder == place(1);
      Traffic traffic;
      const NvmeStore store = NvmeStore::open_or_create(engine_, traffic, description);
      EXPECT_EQ(store.moved().empty(), !whole_second_alone) << l << ": " << store.moved();
      EXPECT_EQ(orphans(), whole_second_alone ? 1u : 0u) << l;
    }
  }
}

TEST_F(StoreAside, WhatCannotBeReadIsLeftAlone) {
  run(0, 2, describe());
  const std::string bytes = bytes_of(file(1));
  fs::rename(file(1), second_ / "elsewhere");
  for (const bool dangling : {false, true}) {
    fs::create_symlink(second_ / (dangling ? "nowhere" : "elsewhere"), file(1));
    EXPECT_EQ(error_of([&] { why_new(describe()); }).code, ErrorCode::io);
    EXPECT_TRUE(fs::is_symlink(file(1)));
    fs::remove(file(1));
  }
  fs::create_directory(file(1));
  EXPECT_EQ(error_of([&] { why_new(describe()); }).code, ErrorCode::usage);
  fs::remove(file(1));
  EXPECT_EQ(orphans(), 0u);
  fs::rename(second_ / "elsewhere", file(1));
  SmallStore store(engine_, describe());
  EXPECT_EQ(store.objection(1, 0), "");
}

TEST_F(StoreAside, ANewOneIsMadeThoughOneFitsAndThatOneIsKept) {
  StoreDescription anew = describe();
  anew.anew = true;
  run(0, 2, describe());
  const auto before = all_files();
  for (const std::string& moved : {std::string("set aside as"), std::string()}) {
    SmallStore store(engine_, anew);
    EXPECT_FALSE(store.store.last_commit());
    EXPECT_FALSE(store.store.why_new().empty());
    EXPECT_TRUE(says(store.store.moved(), moved)) << store.store.moved();
    EXPECT_EQ(store.store.moved().empty(), moved.empty());
    for (const auto& [path, bytes] : before) EXPECT_TRUE(is_kept(bytes)) << path;
    EXPECT_EQ(orphans(), 2u);
  }
  {
    SmallStore store(engine_, describe());
    ASSERT_TRUE(store.store.last_commit()) << "the new one holds nothing";
    EXPECT_EQ(store.objection(1, 0), "");
  }
  run(5, 7, anew);
  SmallStore store(engine_, describe());
  ASSERT_TRUE(store.store.last_commit());
  EXPECT_EQ(store.objection(6, 5), "");
  EXPECT_EQ(orphans(), 2u);
}

TEST_F(StoreAside, OfSeveralThatFitTheOneWrittenLastComesBack) {
  StoreDescription anew = describe();
  anew.anew = true;
  for (int round = 0; round < 4; ++round) {
    clear();
    run(0, 2, describe());
    fs::last_write_time(file(0), fs::file_time_type::clock::now() - std::chrono::hours(1));
    run(5, 7, anew);
    why_new(anew);
    SmallStore store(engine_, describe());
    ASSERT_TRUE(store.store.last_commit());
    EXPECT_EQ(store.objection(6, 5), "");
    EXPECT_EQ(orphans(), 2u);
  }
}

TEST_F(StoreAside, ACopyOfWhatIsAsideDoesNotTakeItsPlace) {
  StoreDescription anew = describe();
  anew.anew = true;
  run(0, 2, describe());
  const u64 id = whole_header(place(0))->store_id;
  why_new(anew);
  for (const int f : {0, 1}) fs::copy_file(aside_of(place(f), id) / kStoreFile, file(f), fs::copy_options::overwrite_existing);
  const auto before = all_files();
  ASSERT_EQ(before.size(), 4u);
  why_new(anew);
  for (const auto& [path, bytes] : before) EXPECT_TRUE(is_kept(bytes)) << path;
}

}  // namespace
}  // namespace spillway::offload::store_aside_test
