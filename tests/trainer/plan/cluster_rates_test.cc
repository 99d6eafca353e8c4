// Tests the rates of machines that are not here. The expected values are the data sheets' figures times the stated shares, by hand.
#include "trainer/plan/cluster_rates.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace spillway::trainer::cluster_rates_test {
namespace {

parallel::PlanRequest request_of(DType weight, int ranks = 1) {
  parallel::PlanRequest request;
  request.device = Device::Kind::cuda;
  request.scheduling.format = optim::plain_format(weight);
  request.scheduling.sharding.ranks = ranks;
  request.gpu_to_gpu = ranks > 1;
  return request;
}

Rates rates(const char* spec, const parallel::PlanRequest& request = request_of(DType::bf16), Tf32 tf32 = {}, bool fp8 = false) {
  return cluster_rates(parse_cluster(spec, "--cluster"), request, tf32, fp8, 8).rates;
}

TEST(ClusterRates, AreTheVendorsFiguresTimesTheStatedShares) {
  const Rates r = rates("1x1xRTX4090,64GiB");
  EXPECT_DOUBLE_EQ(r.flops, 165.2e12 * 0.72 * 0.6);
  EXPECT_DOUBLE_EQ(r.unit.copy_s, 1 / (0.85 * 32e9)) << "PCIe 4.0 x16";
  EXPECT_DOUBLE_EQ(r.unit.gpu_sweep_s, 1 / (0.9 * 1008e9));
  EXPECT_DOUBLE_EQ(rates("1x1xH100,1TiB").unit.copy_s, 1 / (0.85 * 64e9)) << "PCIe 5.0 x16";
  EXPECT_DOUBLE_EQ(rates("1x1xT4,64GiB").unit.copy_s, 1 / (0.85 * 16e9)) << "PCIe 3.0 x16";
  EXPECT_DOUBLE_EQ(rates("1x1xH100,1TiB", request_of(DType::f32)).flops, 67e12 * 0.72 * 0.6);
  EXPECT_DOUBLE_EQ(rates("1x1xH100,1TiB", request_of(DType::f32), {.matmul = true}).flops, 494e12 * 0.72 * 0.6);
  EXPECT_TRUE(r.blocks.empty());
}

TEST(ClusterRates, Fp8OnCardsThatHaveIt) {
  EXPECT_DOUBLE_EQ(rates("1x1xH100,1TiB", request_of(DType::bf16), {}, true).flops, 1.25 * 989e12 * 0.72 * 0.6);
  try {
    rates("1x1xA100-80GiB,1TiB", request_of(DType::bf16), {}, true);
    ADD_FAILURE() << "an A100 has no tensor cores for fp8";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("got A100: give --precision bf16"), std::string::npos) << error.what();
  }
}

// AdamW in fp32 reads a gradient, and reads and writes weight and two moments: 28 bytes a parameter.
TEST(ClusterRates, UpdatesRunAtTheRateOfMemory) {
  const Rates r = rates("1x2xRTX4090,64GiB", request_of(DType::f32));
  EXPECT_DOUBLE_EQ(r.unit.update_s, 28 / 40e9);
  EXPECT_DOUBLE_EQ(r.host_memory_s, 1 / 40e9) << "bounds the copies of updates on the GPU too";
  EXPECT_DOUBLE_EQ(r.unit.gpu_update_s, 28 / (0.9 * 1008e9));
  EXPECT_DOUBLE_EQ(rates("1x2xRTX4090,64GiB,memory-rate=200GB", request_of(DType::f32)).unit.update_s, 28 / 100e9) << "half a node's";
}

TEST(ClusterRates, GpusMeetOverWhatJoinsThem) {
  const auto each = [](const char* spec, int ranks) { return rates(spec, request_of(DType::bf16, ranks)).all_gather_bytes_per_s / ranks; };
  EXPECT_DOUBLE_EQ(each("1x8xH100,1TiB", 8), 0.8 * 450e9) << "NVLink";
  EXPECT_DOUBLE_EQ(each("2x8xH100,1TiB", 16), 25e9) << "the assumed network";
  EXPECT_DOUBLE_EQ(each("2x8xH100,1TiB,network=50GB", 16), 50e9);
  EXPECT_DOUBLE_EQ(each("1x4xRTX4090,256GiB", 4), 0.85 * 32e9) << "PCIe";
  EXPECT_DOUBLE_EQ(each("1x2xRTX3090,256GiB", 2), 0.8 * 56.25e9) << "a bridge";
  EXPECT_DOUBLE_EQ(each("1x4xRTX3090,256GiB", 4), 0.85 * 32e9) << "a bridge joins two";
  EXPECT_DOUBLE_EQ(each("2x1xT4,64GiB,network=100GB", 2), 0.85 * 16e9) << "no faster than PCIe";
}

TEST(ClusterRates, DrivesAreAsGivenOrAsAssumed) {
  EXPECT_DOUBLE_EQ(rates("1x1xH100,1TiB,nvme=7TB").disk_read_bytes_per_s, 1.5e9);
  const Rates given = rates("1x1xH100,1TiB,nvme=7TB,nvme-read=12GB,nvme-write=4GB");
  EXPECT_DOUBLE_EQ(given.disk_read_bytes_per_s, 12e9);
  EXPECT_DOUBLE_EQ(given.disk_write_bytes_per_s, 4e9);
  EXPECT_DOUBLE_EQ(given.machine.duplex, 1) << "reads and writes share the drives";
}

}  // namespace
}  // namespace spillway::trainer::cluster_rates_test
