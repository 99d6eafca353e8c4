// Tests training on a GPU: results are bitwise the same whichever tiers hold the tensors, and the numbers are near the CPU's. In a build
// with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include <gtest/gtest.h>

#include "tests/parallel/device/support_gpu_run.h"

namespace spillway::test::gpu_cuda_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::Tier;

class OnGpu : public GpuRuns, public testing::WithParamInterface<const char*> {};

// Compares losses and norms with the CPU's. The GPU adds in another order, so they agree within a few thousand rounding errors of fp32.
TEST_P(OnGpu, TrainsNearTheCpu) {
  RunOptions o = small_gpu_run(GetParam());
  const RunResult got = train(o);
  o.on_gpu = false;
  const RunResult want = train(o);
  for (size_t s = 0; s < want.losses.size(); ++s) {
    EXPECT_NEAR(got.losses[s], want.losses[s], 1e-5 * want.losses[s]);
    EXPECT_NEAR(got.norms[s], want.norms[s], 1e-4 * want.norms[s]);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OnGpu, testing::Values("gpt2-tiny", "llama-tiny"),
                         [](const auto& model) { return std::string(model.param).substr(0, 4); });

const std::vector<Way>& ways() {
  constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;
  static const std::vector<Way> all = {{"host", placed(host, host, host, OptimizerOverlap::none)},
                                       {"host_backward", placed(host, host, host, OptimizerOverlap::backward)},
                                       {"nvme_forward", placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
                                       {"state_on_host", placed(device, device, host, OptimizerOverlap::backward)},
                                       {"weights_on_nvme", placed(nvme, device, device, OptimizerOverlap::none)},
                                       {"vertical", [](RunOptions& o) { o.order = Order::vertical, o.gradients = Tier::host; }},
                                       {"spilled", [](RunOptions& o) { o.activations = Tier::host, o.optimizer = Tier::nvme; }},
                                       {"recomputed", [](RunOptions& o) { o.activations = Tier::nvme, o.recompute = true; }},
                                       {"streamed_host", streamed(placed(host, host, host, OptimizerOverlap::backward))},
                                       {"streamed_nvme", streamed(placed(nvme, nvme, nvme, OptimizerOverlap::forward))},
                                       {"streamed_state", streamed(placed(device, device, nvme, OptimizerOverlap::backward))},
                                       {"streamed_after_backward", streamed(placed(host, device, host, OptimizerOverlap::none))},
                                       {"streamed_weights", streamed(placed(nvme, host, device, OptimizerOverlap::backward))}};
  return all;
}

class GpuPlacements : public GpuRuns, public testing::WithParamInterface<size_t> {};

// Compares each placement (which tier holds which tensors) with a run that has everything on the GPU. Two models take turns over the
// placements.
TEST_P(GpuPlacements, GiveTheSameBits) {
  RunOptions o = small_gpu_run(GetParam() % 2 ? "gpt2-tiny" : "llama-tiny");
  const RunResult want = train(o);
  ways()[GetParam()].change(o);
  expect_same_run(train(o), want);
}
std::string way_name(const testing::TestParamInfo<size_t>& way) { return ways()[way.param].name; }
INSTANTIATE_TEST_SUITE_P(Ways, GpuPlacements, testing::Values(1, 2, 5, 6, 8, 9), way_name);
INSTANTIATE_TEST_SUITE_P(WaysMore, GpuPlacements, testing::Values(0, 3, 4, 7, 10, 11, 12), way_name);

}  // namespace
}  // namespace spillway::test::gpu_cuda_test
