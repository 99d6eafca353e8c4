// The rates a plan is priced with: where a look at the node ends, the doubts say so.
#include "app/plan/node_rates.h"

#include <gtest/gtest.h>

#include "app/node/disk_limit.h"
#include "tests/app/support_app.h"

namespace spillway::app::node_rates_test {
namespace {

TEST(DiskLook, AProbeLeavesNoDoubtAndNothingBehind) {
  const TemporaryFolder folder;
  const DiskLook look = look_at_disks({{folder.path().string(), {}}}, offload::IoEngineKind::pread, {}, FakeHost().host());
  ASSERT_EQ(look.disks.size(), 1u);
  EXPECT_EQ(look.disks[0].path, folder.path().string());
  EXPECT_GT(look.disks[0].read_bytes_per_s, 0);
  EXPECT_EQ(look.doubts, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(DiskLook, UnderALimitItIsWhatIsSetAndWhatBenchKnows) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string(), disk = disk_of(path);
  FakeHost node;
  node.file("/proc/self/cgroup", "0::/job\n").file("/sys/fs/cgroup/job/io.max", disk + " rbps=200000000 wbps=100000000\n");
  Calibration calibration;
  calibration.disks = {{.path = path, .read_bytes_per_s = 3e9, .write_bytes_per_s = 5e7, .mixed_bytes_per_s = 1e9}};
  const DiskLook look = look_at_disks({{path, {}}}, offload::IoEngineKind::pread, calibration, node.host());
  ASSERT_EQ(look.disks.size(), 1u);
  EXPECT_DOUBLE_EQ(look.disks[0].read_bytes_per_s, 2e8);
  EXPECT_DOUBLE_EQ(look.disks[0].write_bytes_per_s, 5e7);
  EXPECT_EQ(look.doubts, "; the control group lets " + path + " be read at 0.20 and written at 0.05 GB/s");
}

TEST(NodeRates, WithoutTrainingNothingIsTimed) {
  parallel::PlanRequest request;
  request.training = false;
  const NodeRates node = measure_rates(request, {.device = Device::cpu(), .threads = 3}, {}, {.doubts = "; of the disks"}, {});
  EXPECT_TRUE(node.rates.blocks.empty());
  EXPECT_EQ(node.rates.unit.tile_s, Rates().unit.tile_s);
  EXPECT_EQ(node.rates.threads, 3);
  EXPECT_EQ(node.rates.machine.cores, 3);
  EXPECT_EQ(node.doubts, "; of the disks");
  EXPECT_GT(node.process_bytes, 0);
  EXPECT_GE(node.peak_bytes, node.process_bytes);
}

TEST(NodeRates, AGpuThatIsNotHereIsReckonedWithConstants) {
  parallel::PlanRequest request;
  request.device = Device::Kind::cuda;
  request.scheduling.format = optim::plain_format(DType::bf16);
  const NodeRates node = measure_rates(request, {.device = Device::cuda(0), .is_here = false}, {}, {}, {});
  EXPECT_TRUE(node.rates.blocks.empty());
  EXPECT_NE(node.rates.unit.tile_s, Rates().unit.tile_s) << "of the CPU, which is here";
  EXPECT_EQ(node.rates.unit.copy_s, 1 / kLinkBytesPerS) << "of the link, not of this machine's memory";
  EXPECT_EQ(node.doubts, "; no GPU was looked at: computing and copying are reckoned with constants");
}

}  // namespace
}  // namespace spillway::app::node_rates_test
