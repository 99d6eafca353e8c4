// Tests the measured rates that predict a plan's time. If a rate could not be measured, the plan's list of doubts names it.
#include "trainer/plan/node_rates.h"

#include <gtest/gtest.h>

#include "device/memory_pool.h"
#include "tests/trainer/support_trainer.h"
#include "trainer/node/disk_limit.h"
#include "trainer/node/disk_load.h"
#include "trainer/node/disk_meter.h"

namespace spillway::trainer::node_rates_test {
namespace {

CpuSample idle() { return {}; }

// A clock by which other programs took as much processor time between two samples as this process's thread.
CpuClock busy() {
  return [samples = 0]() mutable {
    const double s = ++samples;
    return CpuSample{{{1, {.ran_s = s, .waited_s = s}}}, s, 2 * s};
  };
}

TEST(DiskLook, AProbeLeavesNoDoubtAndNothingBehind) {
  const TemporaryFolder folder;
  const DiskLook look = look_at_disks({{folder.path().string(), {}}}, offload::IoEngineKind::pread, {}, FakeHost().host(), {}, idle);
  ASSERT_EQ(look.disks.size(), 1u);
  EXPECT_EQ(look.disks[0].path, folder.path().string());
  EXPECT_GT(look.disks[0].read_bytes_per_s, 0);
  EXPECT_EQ(look.doubts, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// DiskLoad probes the disk as a training run loads it: most reads happen while it is also writing.
TEST(DiskLook, AProbeMovesBothWaysAndNoMoreThanItSays) {
  const TemporaryFolder folder;
  DiskMeter meter(offload::SystemCalls::real());
  constexpr i64 kFileBytes = 64 * kMiB;
  {
    const offload::ChosenEngine engine = offload::make_io_engine(offload::IoEngineKind::pread, offload::kQueueDepth, meter);
    const auto rates = probe_disk(folder.path(), *engine.engine, {.file_bytes = kFileBytes, .threads = 2});
    ASSERT_TRUE(rates);
    EXPECT_GT(rates->mixed_bytes_per_s, 0);
    EXPECT_LE(rates->duplex(), 2);
  }
  const DiskUse use = meter.use();
  EXPECT_GE(use.read_bytes, DiskLoad::kPieceBytes * 16);
  EXPECT_GE(use.written_bytes, use.read_bytes);
  EXPECT_LE(use.written_bytes, 5 * kFileBytes);
  EXPECT_LT(use.either_s, use.read_s + use.write_s) << "reads and writes at once";
}

// A cache may absorb the first bytes that are written. The measured rate is therefore that of the last parts only.
TEST(DiskLook, ASteadyRateEndsTheMeasurement) {
  const TemporaryFolder folder;
  const offload::ChosenEngine engine = offload::make_io_engine(offload::IoEngineKind::pread);
  const offload::ScratchFile file = nameless_file(folder.path(), 16 * DiskLoad::kPieceBytes);
  DiskLoad load(file, *engine.engine, MemoryPool::heap(), 4);
  const i64 pieces = load.fill(16, 10);
  EXPECT_EQ(pieces, 16);
  EXPECT_GT(load.sustained(DiskLoad::Mix::both, pieces, 40, 1e-9), 0) << "less than the parts that are looked at";
  EXPECT_GT(load.sustained(DiskLoad::Mix::read, pieces, 1 << 12, 1e-9), 0) << "ends after four parts";
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
  EXPECT_EQ(look.doubts, "; the control group limits " + path + " to 0.20 GB/s for reads and 0.05 GB/s for writes");
}

// A disk that is probed while the machine is busy has the rates of bench, if there are any, else those of the probe. Both are said.
TEST(DiskLook, OnABusyMachineWhatBenchKnowsCounts) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  Calibration calibration;
  calibration.disks = {{.path = path, .read_bytes_per_s = 3, .write_bytes_per_s = 2, .mixed_bytes_per_s = 2}};
  const auto look = [&](const Calibration& c, const CpuClock& clock) {
    return look_at_disks({{path, {}}}, offload::IoEngineKind::pread, c, FakeHost().host(), {}, clock);
  };
  EXPECT_EQ(look(calibration, busy()).disks[0].read_bytes_per_s, 3);
  EXPECT_GT(look(calibration, idle).disks[0].read_bytes_per_s, 3);
  const DiskLook only = look({}, busy());
  EXPECT_GT(only.disks[0].read_bytes_per_s, 3);
  EXPECT_NE(only.doubts.find("the machine was busy"), std::string::npos) << only.doubts;
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
  const NodeRates node = measure_rates(request, {.device = Device::cuda(0), .is_here = false, .clock = idle}, {}, {}, {});
  EXPECT_TRUE(node.rates.blocks.empty());
  EXPECT_NE(node.rates.unit.tile_s, Rates().unit.tile_s) << "of the CPU, which is here";
  EXPECT_EQ(node.rates.unit.copy_s, 1 / kLinkBytesPerS) << "of the link, not of this machine's memory";
  EXPECT_EQ(node.doubts, "; no GPU was measured: the times of computing and copying are estimated from constants");
  const NodeRates held_up = measure_rates(request, {.device = Device::cuda(0), .is_here = false, .clock = busy()}, {}, {}, {});
  EXPECT_NE(held_up.doubts.find("the machine was busy while it was measured"), std::string::npos) << held_up.doubts;
}

}  // namespace
}  // namespace spillway::trainer::node_rates_test
