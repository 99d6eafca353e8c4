#include "trainer/plan/shares.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "offload/nvme_store.h"
#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::shares_test {
namespace {

namespace fs = std::filesystem;
using Weights = std::vector<u32>;

TEST(Shares, WeightsAreTheSmallestNumbersThatMeetTheRates) {
  EXPECT_EQ(weights_of({3.2e9}), (Weights{1}));
  // two measurements of one drive differ a little, which must not change the shares
  EXPECT_EQ(weights_of({1.50e9, 1.42e9}), (Weights{1, 1}));
  EXPECT_EQ(weights_of({1.42e9, 1.50e9, 1.37e9}), (Weights{1, 1, 1}));
  EXPECT_EQ(weights_of({3.0e9, 1.0e9}), (Weights{3, 1}));
  EXPECT_EQ(weights_of({0.49e9, 1.52e9}), (Weights{1, 3}));
  EXPECT_EQ(weights_of({3.0e9, 2.0e9, 1.0e9}), (Weights{3, 2, 1}));
  EXPECT_EQ(weights_of({7.0e9, 0.2e9}), (Weights{32, 1}));
  EXPECT_EQ(weights_of({7.0e9, 1e5}), (Weights{64, 1}));  // a very slow path still takes one part
}

TEST(Shares, EveryRateIsMetToATenth) {
  for (double slow = 1; slow < 64; slow *= 1.037) {
    const Weights weights = weights_of({64e9, slow * 1e9});
    EXPECT_NEAR(static_cast<double>(weights[1]) / weights[0] / (slow / 64), 1, 0.1001) << slow;
    EXPECT_LE(weights[0], 64u);
  }
}

TEST(Shares, ThePathWithTheLeastRoomForItsShareDecides) {
  EXPECT_EQ(striped_room({1}, {1000}), 1000);
  EXPECT_EQ(striped_room({1, 1}, {1000, 300}), 600);
  EXPECT_EQ(striped_room({3, 1}, {900, 300}), 1200);
  EXPECT_EQ(striped_room({3, 1}, {900, 200}), 800);
  EXPECT_EQ(striped_room({}, {}), 0);
}

struct KnownShares : testing::Test {
  const TemporaryFolder folder;
  std::vector<ScratchPath> paths;
  KnownShares() {
    for (const char* name : {"a", "b"}) {
      paths.push_back({(folder.path() / name).string(), {}});
      fs::create_directory(paths.back().path);
    }
  }
  Calibration rates(double a, double b) const {
    Calibration calibration;
    calibration.disks = {{.path = paths[0].path, .mixed_bytes_per_s = a}, {.path = paths[1].path, .mixed_bytes_per_s = b}};
    return calibration;
  }
};

TEST_F(KnownShares, OnePathNeedsNone) {
  paths.pop_back();
  const Shares shares = known_shares(paths, "run", {});
  EXPECT_EQ(shares.weights, (Weights{1}));
  EXPECT_EQ(shares.text(), "");
  EXPECT_FALSE(shares.to_measure);
}

TEST_F(KnownShares, AreBenchsFiguresWhereItMeasured) {
  const Shares shares = known_shares(paths, "run", rates(0.5e9, 1.0e9));
  EXPECT_EQ(shares.text(), "shares 1:2 (bench measured 0.50, 1.00 GB/s)");
  EXPECT_FALSE(shares.to_measure);
}

TEST_F(KnownShares, OfOneFilesystemAreEqual) {
  EXPECT_EQ(known_shares(paths, "run", {}).text(), "shares 1:1 (one filesystem)");
  fs::remove(paths[1].path);  // a path that does not exist yet will be created on the same filesystem as before
  EXPECT_EQ(known_shares(paths, "run", {}).text(), "shares 1:1 (one filesystem)");
}

TEST_F(KnownShares, OfTwoFilesystemsAreMeasured) {
  struct stat here {
  }, there{};
  ASSERT_EQ(::stat(folder.path().c_str(), &here), 0);
  if (::stat("/dev/shm", &there) != 0 || there.st_dev == here.st_dev) GTEST_SKIP() << "no /dev/shm of its own";
  paths[1].path = "/dev/shm";
  const Shares shares = known_shares(paths, "run", {});
  EXPECT_EQ(shares.text(), "shares 1:1 (not measured)");
  EXPECT_TRUE(shares.to_measure);
}

TEST(Shares, FollowMixedReadsAndWrites) {
  const DiskRates fast{.path = "/a", .read_bytes_per_s = 4e9, .write_bytes_per_s = 3e9, .mixed_bytes_per_s = 3e9},
      slow{.path = "/b", .read_bytes_per_s = 2e9, .write_bytes_per_s = 1e9, .mixed_bytes_per_s = 1.5e9};
  const Shares shares = shares_by({fast, slow}, "measured");
  EXPECT_EQ(shares.text(), "shares 2:1 (measured 3.00, 1.50 GB/s)");
  EXPECT_DOUBLE_EQ(striped_rate(shares.weights, {fast, slow}, &DiskRates::mixed_bytes_per_s), 4.5e9);
  EXPECT_DOUBLE_EQ(striped_rate({1, 1}, {fast, slow}, &DiskRates::mixed_bytes_per_s), 3e9);
  EXPECT_DOUBLE_EQ(drives_worth(shares.weights), 1.5);
  EXPECT_DOUBLE_EQ(drives_worth({1, 1}), 2);
  EXPECT_DOUBLE_EQ(drives_worth({}), 1);
}

TEST_F(KnownShares, AreThoseOfTheFilesADeadRunLeft) {
  offload::StoreDescription description;
  for (const ScratchPath& path : paths) {
    const fs::path own = fs::path(path.path) / "spillway-run";
    fs::create_directory(own);
    description.paths.push_back({own, path.path == paths[0].path ? 5u : 2u});
  }
  description.run_id = "run";
  description.data_bytes = 70 * kMiB;
  const auto engine = offload::make_io_engine(offload::IoEngineKind::pread);
  offload::Traffic traffic;
  { offload::NvmeStore::open_or_create(*engine.engine, traffic, description); }
  EXPECT_EQ(known_shares(paths, "run", rates(1e9, 1e9)).text(), "shares 5:2 (as the files are striped)");
  EXPECT_EQ(known_shares(paths, "another", rates(1e9, 1e9)).text(), "shares 1:1 (bench measured 1.00, 1.00 GB/s)");
  for (const i64 offset : {i64{0}, i64{80}, i64{4000}}) {  // a store is ignored if one bit of its header is wrong
    std::fstream file(description.paths[0].folder / offload::kStoreFile, std::ios::in | std::ios::out | std::ios::binary);
    char kept = 0;
    file.seekg(offset).get(kept);
    file.seekp(offset).put(static_cast<char>(kept ^ 1)).flush();
    EXPECT_TRUE(offload::kept_weights(description.paths[0].folder).empty()) << offset;
    file.seekp(offset).put(kept).flush();
    EXPECT_EQ(offload::kept_weights(description.paths[0].folder), (Weights{5, 2}));
  }
  fs::resize_file(description.paths[0].folder / offload::kStoreFile, 100);
  EXPECT_TRUE(offload::kept_weights(description.paths[0].folder).empty());
}

}  // namespace
}  // namespace spillway::trainer::shares_test
