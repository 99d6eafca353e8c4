// Tests the paths of the nvme tier: whether flags or the batch system give them, how many bytes
// of each a plan may use, and when measured disk rates decide each path's share of the data.
#include "trainer/plan/nvme_paths.h"

#include <gtest/gtest.h>

#include "offload/scratch_folder.h"
#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::nvme_paths_test {
namespace {

namespace fs = std::filesystem;

struct NvmePathsTest : testing::Test {
  const TemporaryFolder folder;
  FakeHost node;
  const ScratchId id{"run"};

  std::string path(const std::string& name) const {
    fs::create_directories(folder.path() / name);
    return (folder.path() / name).string();
  }
  NvmePaths found(std::vector<ScratchPath> given, int local_ranks = 1) const {
    ResourceConfig config;
    config.nvme = std::move(given);
    config.allow_network_nvme = true;  // allows this, since the temporary folder may be on a network filesystem
    return find_nvme_paths(config, id, local_ranks, node.host());
  }
};

TEST_F(NvmePathsTest, AreTheFlagsElseTheBatchSystems) {
  EXPECT_TRUE(found({}).paths.empty());
  EXPECT_EQ(found({}).tier_bytes(), 0);
  node.env("SLURM_TMPDIR", path("job"));
  EXPECT_EQ(found({}).paths, (std::vector<ScratchPath>{{path("job"), {}}}));
  EXPECT_GT(found({}).tier_bytes(), 0);
  EXPECT_EQ(found({{path("own"), {}}}).paths, (std::vector<ScratchPath>{{path("own"), {}}}));
}

TEST_F(NvmePathsTest, ACeilingIsOfAllRanksOfTheNode) {
  EXPECT_EQ(found({{path("a"), kMiB}}).tier_bytes(), kMiB);
  EXPECT_EQ(found({{path("a"), kMiB}}, 4).tier_bytes(), kMiB / 4);
  EXPECT_EQ(found({{path("a"), kMiB}, {path("b"), 3 * kMiB}}).room_bytes, (std::vector<i64>{kMiB, 3 * kMiB}));
  EXPECT_EQ(found({{path("a"), kMiB}, {path("b"), 3 * kMiB}}).tier_bytes(), 2 * kMiB) << "equal shares: the smaller path decides";
}

TEST_F(NvmePathsTest, TakeOfAFilesystemWhatADeadRunDidNotLeaveThere) {
  const NvmePaths nvme = found({{path("a"), {}}, {path("b"), {}}});
  const std::string beside = folder.path().string();
  EXPECT_EQ(nvme.bytes_beside(beside, 8 * kMiB, id), 8 * kMiB);
  EXPECT_EQ(nvme.bytes_beside(beside, 0, id), 0);
  offload::ScratchFolder(path("a"), "run").keep();
  folder.write("a/spillway-run/tier", std::string(kMiB, 'x'));
  const i64 left = id.bytes_left_behind(path("a"));
  ASSERT_GE(left, kMiB);
  EXPECT_EQ(nvme.bytes_beside(beside, 8 * kMiB, id), 8 * kMiB - left);
  EXPECT_EQ(nvme.bytes_beside(beside, kMiB, id), kMiB / 2) << "what is left on one path helps none on the other";
  EXPECT_EQ(nvme.bytes_beside("/proc", 8 * kMiB, id), 0);
}

TEST_F(NvmePathsTest, MeasuredRatesSettleSharesThatWaitForThem) {
  const DiskRates fast{.path = "/a", .mixed_bytes_per_s = 3e9}, slow{.path = "/b", .mixed_bytes_per_s = 1e9};
  NvmePaths nvme{.paths = {{"/a", {}}, {"/b", {}}}, .room_bytes = {600, 400}, .shares = {.weights = {1, 1}, .to_measure = true}};
  EXPECT_FALSE(nvme.take_measured({}));
  EXPECT_FALSE(nvme.take_measured({fast, DiskRates()})) << "one of them is constants";
  EXPECT_EQ(nvme.tier_bytes(), 800);
  EXPECT_TRUE(nvme.take_measured({fast, slow}));
  EXPECT_EQ(nvme.shares.text(), "shares 3:1 (measured 3.00, 1.00 GB/s)");
  EXPECT_EQ(nvme.tier_bytes(), 800);
  EXPECT_FALSE(nvme.take_measured({slow, fast})) << "they are settled";
}

}  // namespace
}  // namespace spillway::trainer::nvme_paths_test
