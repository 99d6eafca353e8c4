// Tests the lifetime of a run's files on the scratch paths. When a session ends, it removes files that it created, unless it was told to
// keep them. Files that were there before the session stay until the session releases them.
#include "trainer/run/held_scratch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "offload/scratch_folder.h"
#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::held_scratch_test {
namespace {

namespace fs = std::filesystem;

struct HeldScratchTest : testing::Test {
  const TemporaryFolder folder;
  NvmePaths nvme;
  HeldScratch::Options options{.allow_network = true, .engine = offload::IoEngineKind::pread, .recoverable = true};

  HeldScratchTest() {
    for (const char* name : {"a", "b"}) nvme.paths.push_back({(folder.path() / name).string(), {}});
    nvme.shares = {.weights = {3, 1}, .why = "measured"};
  }
  fs::path at(const std::string& name) const { return folder.path() / name; }
};

TEST_F(HeldScratchTest, ItsFoldersGoWithIt) {
  {
    const HeldScratch held(nvme, {"run"}, options);
    EXPECT_TRUE(fs::exists(at("a/spillway-run/owner")));
    EXPECT_TRUE(fs::exists(at("b/spillway-run/owner")));
    const std::vector<offload::StripePath> stripes = held.stripes();
    ASSERT_EQ(stripes.size(), 2u);
    EXPECT_EQ(stripes[0].folder, at("a/spillway-run"));
    EXPECT_EQ(stripes[0].weight, 3u);
    EXPECT_EQ(stripes[1].weight, 1u);
    EXPECT_TRUE(held.text().starts_with("nvme: " + at("a/spillway-run").string() + ", ")) << held.text();
    EXPECT_NE(held.text().find(" shares 3:1 (measured), pread"), std::string::npos) << held.text();
  }
  EXPECT_TRUE(fs::is_empty(at("a")));
  EXPECT_TRUE(fs::is_empty(at("b")));
}

TEST_F(HeldScratchTest, WhatIsKeptIsFoundByTheNext) {
  {
    HeldScratch held(nvme, {"run"}, options);
    folder.write("a/spillway-run/tier", "bytes");
    held.keep();
  }
  EXPECT_TRUE(fs::exists(at("a/spillway-run/tier")));
  const HeldScratch again(nvme, {"run"}, options);
  EXPECT_TRUE(fs::exists(at("a/spillway-run/tier")));
}

TEST_F(HeldScratchTest, WhatWasFoundStaysUntilItIsGivenUp) {
  HeldScratch(nvme, {"run"}, options).keep();
  folder.write("a/spillway-run/tier", "bytes");
  { const HeldScratch refused(nvme, {"run"}, options); }
  EXPECT_TRUE(fs::exists(at("a/spillway-run/tier")));
  HeldScratch(nvme, {"run"}, options).give_up(false);
  EXPECT_TRUE(fs::is_empty(at("a")));
}

TEST_F(HeldScratchTest, WhatNoRestartCouldUseIsNotKept) {
  options.recoverable = false;
  HeldScratch(nvme, {"run"}, options).keep();
  EXPECT_TRUE(fs::is_empty(at("a")));
}

TEST_F(HeldScratchTest, WhatOtherRanksLeftAndWhatIsAsideGoesForGood) {
  fs::create_directory(at("a"));
  for (const char* id : {"run", "run-rank1", "run-rank2", "another"}) offload::ScratchFolder(at("a"), id).keep();
  offload::make_aside(at("a/spillway-run-rank0"), 7);
  const auto left = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(at("a"))) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  };
  const std::vector<std::string> all = left();
  ASSERT_EQ(all.size(), 5u);
  {
    HeldScratch first(nvme, {"run", 0, 2}, options);
    EXPECT_NE(first.text().find("spillway-run spillway-run-rank0.aside-0000000000000007 spillway-run-rank2, is kept"), std::string::npos)
        << first.text();
    first.give_up(false);
  }
  EXPECT_EQ(left(), all);
  options.first_here = false;
  HeldScratch(nvme, {"run", 1, 2}, options).give_up(true);
  EXPECT_EQ(left().size(), 4u) << "its own alone";
  options.first_here = true;
  HeldScratch(nvme, {"run", 0, 2}, options).give_up(true);
  EXPECT_EQ(left(), std::vector<std::string>{"spillway-another"});
}

}  // namespace
}  // namespace spillway::trainer::held_scratch_test
