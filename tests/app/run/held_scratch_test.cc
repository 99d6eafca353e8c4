// What becomes of a run's files on the scratch paths: they go with the session unless they are kept, and with them those of ranks that are
// no more.
#include "app/run/held_scratch.h"

#include <gtest/gtest.h>

#include "tests/app/support_app.h"

namespace spillway::app::held_scratch_test {
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

TEST_F(HeldScratchTest, WhatNoRestartCouldUseIsNotKept) {
  options.recoverable = false;
  HeldScratch(nvme, {"run"}, options).keep();
  EXPECT_TRUE(fs::is_empty(at("a")));
}

TEST_F(HeldScratchTest, TheFirstRankOfANodeGivesUpWhatOtherRanksLeft) {
  for (const char* name : {"spillway-run", "spillway-run-rank1", "spillway-run-rank2", "spillway-another"})
    folder.write("a/" + std::string(name) + "/owner", "host=n1");
  options.first_here = false;
  { const HeldScratch second(nvme, {"run", 1, 2}, options); }
  EXPECT_FALSE(fs::exists(at("a/spillway-run-rank1"))) << "its own, taken over";
  EXPECT_TRUE(fs::exists(at("a/spillway-run-rank2")));
  options.first_here = true;
  folder.write("a/spillway-run-rank1/owner", "host=n1");
  const HeldScratch first(nvme, {"run", 0, 2}, options);
  EXPECT_FALSE(fs::exists(at("a/spillway-run")));
  EXPECT_TRUE(fs::exists(at("a/spillway-run-rank1"))) << "a rank's that is";
  EXPECT_FALSE(fs::exists(at("a/spillway-run-rank2")));
  EXPECT_TRUE(fs::exists(at("a/spillway-another")));
  EXPECT_NE(first.text().find("what they left is given up (spillway-run spillway-run-rank2),"), std::string::npos) << first.text();
}

}  // namespace
}  // namespace spillway::app::held_scratch_test
