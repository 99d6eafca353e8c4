// Tests how --device and a node's GPUs decide which device a rank computes on and plans for. No GPU is needed: the GPU reports are made up.
#include "trainer/ranks/device_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace spillway::trainer::device_choice_test {
namespace {

GpuReport two_gpus() {
  GpuReport report;
  for (int i = 0; i < 2; ++i) report.gpus.push_back({i, "Test GPU", "0:" + std::to_string(i) + ":0", 16 * kGiB, 15 * kGiB, 90, ""});
  return report;
}
GpuReport none() { return {{}, "no driver"}; }

ResourceConfig on(const std::string& device) {
  ResourceConfig config;
  config.device = device;
  return config;
}

// Returns the code and the message of the Error that `body` throws.
template <class Body>
std::pair<ErrorCode, std::string> error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::bug, "no error"};
}
void expect_error(const std::pair<ErrorCode, std::string>& got, ErrorCode code, const std::string& text) {
  EXPECT_EQ(got.first, code) << got.second;
  EXPECT_NE(got.second.find(text), std::string::npos) << got.second;
}

TEST(DeviceChoice, LeftOpenItIsTheBestFound) {
  ResourceConfig config;
  resolve_device(config, none());
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.precision, Precision::fp32);
  GpuReport broken = two_gpus();
  for (GpuFacts& gpu : broken.gpus) gpu.problem = "no code for it";
  config = {};
  resolve_device(config, broken);
  EXPECT_EQ(config.device, "cpu");
  config = on("cuda");
  resolve_device(config, none());
  EXPECT_EQ(config.device, "cuda") << "what was asked for is refused later, not replaced";
  EXPECT_EQ(config.precision, Precision::bf16);
  config.precision = Precision::fp32;
  resolve_device(config, two_gpus());
  EXPECT_EQ(config.precision, Precision::fp32);
}

TEST(DeviceChoice, SlicesOfOneGpuAreGpusOfTheirOwn) {
  GpuFacts one = two_gpus().gpus[0], other = one;
  one.unique = "0a", other.unique = "0b";
  EXPECT_NE(gpu_of_node("here", one), gpu_of_node("here", other)) << "in one place";
  other.unique = one.unique;
  EXPECT_EQ(gpu_of_node("here", one), gpu_of_node("here", other));
  EXPECT_NE(gpu_of_node("here", one), gpu_of_node("there", one));
}

TEST(DeviceChoice, Tf32IsAGpus) {
  ResourceConfig config = on("cuda");
  config.precision = Precision::tf32;
  resolve_device(config, two_gpus());
  EXPECT_TRUE(config.tf32_matmul && config.tf32_conv);
  config = on("cuda");
  config.precision = Precision::fp32, config.tf32_conv = true;
  resolve_device(config, two_gpus());
  EXPECT_TRUE(!config.tf32_matmul && config.tf32_conv) << "each by itself";
  config.device = "cpu";
  expect_error(error_of([&] { resolve_device(config, two_gpus()); }), ErrorCode::usage, "expected --device cuda with tf32");
  config = on("cuda");
  config.tf32_matmul = true;
  expect_error(error_of([&] { resolve_device(config, two_gpus()); }), ErrorCode::usage, "expected fp32 or tf32");
}

TEST(DeviceChoice, Fp8NeedsTensorCoresForIt) {
  ResourceConfig config = on("cuda");
  config.precision = Precision::fp8;
  GpuReport ampere = two_gpus();
  for (const int capability : {80, 86, 87}) {
    ampere.gpus[0].compute_capability = capability;
    expect_error(error_of([&] { choose_device(config, ampere, {}); }), ErrorCode::usage, "give --precision bf16");
  }
  expect_error(error_of([&] { choose_device(config, ampere, {}); }), ErrorCode::usage, "got cuda:0, Test GPU with 8.7");
  for (const int capability : {89, 90, 120}) {
    ampere.gpus[0].compute_capability = capability;
    const std::string said = error_of([&] { choose_device(config, ampere, {}); }).second;
    EXPECT_EQ(said.find("[--precision]"), std::string::npos) << said;
  }
  config = on("cpu");
  config.precision = Precision::fp8;
  resolve_device(config, none());
  EXPECT_EQ(error_of([&] { choose_device(config, none(), {}); }).second, "no error") << "a CPU computes the same numbers";
}

TEST(DeviceChoice, RefusesWhatIsNotThere) {
  const auto choose = [](const std::string& device, const GpuReport& report, const RankPlace& place = {}) {
    return error_of([&] { choose_device(on(device), report, place); });
  };
  expect_error(choose("cuda", none()), ErrorCode::usage, "got none: no driver");
  expect_error(choose("cuda:2", two_gpus()), ErrorCode::usage, "cuda:0 to cuda:1");
  expect_error(choose("cuda:1", two_gpus(), {.ranks = 2}), ErrorCode::usage, "expected cuda for 2 ranks");
  GpuReport report = two_gpus();
  report.gpus[0].problem = "this build has no code for compute capability 50";
  expect_error(choose("cuda", report), ErrorCode::usage, "no code for compute capability 50");
  report.gpus[0].free_bytes = 0;
  report.gpus[0].problem = "busy";
  expect_error(choose("cuda", report), ErrorCode::io, "busy");
}

TEST(DeviceChoice, APlanNeedsNoGpu) {
  const ChosenDevice chosen = choose_device(on("cuda"), none(), {}, true);
  EXPECT_TRUE(chosen.device.is_cuda());
  EXPECT_FALSE(chosen.free_bytes);
  MemoryGrant grant;
  grant.bytes = 8 * kGiB;
  expect_error(error_of([&] { gpu_budgets(grant, chosen, {}, {}); }), ErrorCode::usage, "give --device-memory");
  const Budgets budgets = gpu_budgets(grant, chosen, 80 * kGiB, {});
  EXPECT_EQ(budgets.device_bytes, 80 * kGiB);
  EXPECT_EQ(budgets.host_bytes, 8 * kGiB);
}

// A GPU's memory and the host's memory have separate budgets: neither budget is reduced for the other.
TEST(DeviceChoice, BudgetsOfAGpu) {
  MemoryGrant grant;
  grant.bytes = 8 * kGiB, grant.bounded = "the cgroup limit";
  const ChosenDevice gpu{Device::cuda(0), "cuda:0, Test GPU", "Test GPU", 14 * kGiB};
  EXPECT_EQ(gpu_budgets(grant, gpu, {}, {}).device_bytes, 14 * kGiB);
  EXPECT_EQ(gpu_budgets(grant, gpu, {}, {}).host_bytes, 8 * kGiB);
  EXPECT_EQ(gpu_budgets(grant, gpu, 2 * kGiB, 3 * kGiB).device_bytes, 2 * kGiB);
  EXPECT_EQ(gpu_budgets(grant, gpu, 2 * kGiB, 3 * kGiB).host_bytes, 3 * kGiB);
  expect_error(error_of([&] { gpu_budgets(grant, gpu, 15 * kGiB, {}); }), ErrorCode::refused, "at most 14.0 GiB");
  expect_error(error_of([&] { gpu_budgets(grant, gpu, {}, 9 * kGiB); }), ErrorCode::refused, "the cgroup limit");
  const ChosenDevice elsewhere{Device::cuda(0), "a GPU", "", {}};
  EXPECT_EQ(gpu_budgets(grant, elsewhere, 80 * kGiB, 512 * kGiB).host_bytes, 512 * kGiB);
  expect_error(error_of([&] { gpu_budgets(grant, elsewhere, {}, {}); }), ErrorCode::usage, "give --device-memory");
}

}  // namespace
}  // namespace spillway::trainer::device_choice_test
