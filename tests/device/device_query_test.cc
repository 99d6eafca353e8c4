#include "device/device_query.h"

#include <gtest/gtest.h>

namespace spillway::device_query_test {
namespace {

TEST(DeviceQuery, EitherFindsGpusOrSaysWhyNot) {
  const GpuReport report = query_gpus();
  EXPECT_NE(report.gpus.empty(), report.problem.empty()) << report.gpus.size() << " GPUs, problem: " << report.problem;
}

TEST(DeviceQuery, SaysTheSameTwice) {
  const GpuReport first = query_gpus(), second = query_gpus();
  EXPECT_EQ(first.problem, second.problem);
  EXPECT_EQ(first.gpus.size(), second.gpus.size());
}

TEST(DeviceQuery, OpensOneAlone) {
  const GpuReport report = query_gpus(4);
  if (report.gpus.empty()) GTEST_SKIP() << "needs a GPU: " << report.problem;
  for (const GpuFacts& gpu : report.gpus) {
    const bool opened = gpu.index == 4 % static_cast<int>(report.gpus.size());
    EXPECT_EQ(gpu.problem, opened ? "" : "the GPU was not examined");
    EXPECT_EQ(gpu.free_bytes > 0, opened);
    EXPECT_NE(gpu.name, "");
  }
}

TEST(DeviceQuery, DescribesEveryGpu) {
  const GpuReport report = query_gpus();
  if (report.gpus.empty()) GTEST_SKIP() << "needs a GPU: " << report.problem;
  for (size_t i = 0; i < report.gpus.size(); ++i) {
    const GpuFacts& gpu = report.gpus[i];
    EXPECT_EQ(gpu.index, static_cast<int>(i));
    EXPECT_EQ(gpu.problem, "");
    EXPECT_NE(gpu.name, "");
    EXPECT_GE(gpu.compute_capability, 50);
    EXPECT_GT(gpu.free_bytes, 0);
    EXPECT_LE(gpu.free_bytes, gpu.total_bytes);
  }
}

}  // namespace
}  // namespace spillway::device_query_test
