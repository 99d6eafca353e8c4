// Tests the share of a step in which the GPU computes, for the chosen plan and for a plan without prefetch and overlap. The models have
// the bytes and FLOPs of real trainings. GPU rates are the constants for a GPU that is not known. CPU rates are set by the test: nothing is
// timed.
#include <gtest/gtest.h>

#include "models/model.h"
#include "models/presets.h"
#include "trainer/plan/planner.h"
#include "trainer/plan/prediction.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer::gpu_shares_test {
namespace {

using parallel::Tier;

// Plans Llama 3 8B in bf16 with four micro-batches a step, on GPUs of 80 GiB in nodes with 1 TiB of host memory.
class GpuShares : public testing::Test {
 protected:
  GpuShares()
      : model_(models::build(models::preset("llama3-8b"), DType::bf16)), rates_(make_rates({}, Device::Kind::cuda, DType::bf16, {}, {})) {
    request_.model = &model_;
    request_.layout = parallel::make_layout(model_);
    request_.device = Device::Kind::cuda;
    request_.scheduling.copy_engines = true;
    request_.scheduling.format = optim::plain_format(DType::bf16);
    request_.scheduling.micro_batches = 4;
    rates_.threads = 16;
    // seconds for 28 bytes, which an element takes, at a quarter of the bandwidth of 8 channels of DDR5-4800
    rates_.unit.update_s = 28 / 70e9;
  }
  static PlacementSettings all_on(Tier tier) {
    PlacementSettings wishes;
    wishes.parameters = wishes.gradients = wishes.optimizer = PlacementWish::whole(tier);
    wishes.recompute = Recompute::block;
    return wishes;
  }
  StepCost cost(const PlacementSettings& wishes) const {
    const ChosenPlan chosen = choose_plan(request_, wishes, {.bytes = {79 * kGiB, 1024 * kGiB, 0}}, rates_);
    return predict(chosen.plan, {}, model_, rates_);
  }
  double share(const PlacementSettings& wishes) const {
    const StepCost c = cost(wishes);
    return c.share(c.computing_s);
  }
  static PlacementSettings waiting(PlacementSettings wishes) {
    wishes.prefetch = 0;
    wishes.overlap = OptimizerOverlap::none;
    return wishes;
  }

  const nn::Sequential model_;
  parallel::PlanRequest request_;
  Rates rates_;
};

// One GPU trains with weights, gradients and optimizer state in host memory, over PCIe 4 and over PCIe 5.
TEST_F(GpuShares, OneGpuComputesWhileTheHostFeedsItAndSteps) {
  request_.sequence_length = 8192;
  for (const double link_bytes_per_s : {kLinkBytesPerS, 50e9}) {
    rates_.unit.copy_s = 1 / link_bytes_per_s;
    const double ahead = share(all_on(Tier::host)), waits = share(waiting(all_on(Tier::host)));
    EXPECT_GE(ahead, 0.9) << link_bytes_per_s;
    EXPECT_LE(waits, 0.7 * ahead) << link_bytes_per_s;
    RecordProperty(link_bytes_per_s > 30e9 ? "pcie_5" : "pcie_4", testing::PrintToString(std::pair(ahead, waits)));
  }
}

// Keeps all activations of four micro-batches in host memory. They travel beside the blocks; without prefetch the blocks wait for them.
TEST_F(GpuShares, OneGpuComputesWhileActivationsTravel) {
  request_.sequence_length = 8192;
  rates_.unit.copy_s = 1 / 50e9;
  PlacementSettings wishes = all_on(Tier::host);
  wishes.activations = PlacementWish::whole(Tier::host);
  wishes.recompute = Recompute::none;
  wishes.order = parallel::Order::vertical;
  const StepCost ahead = cost(wishes), waits = cost(waiting(wishes));
  EXPECT_LE(ahead.seconds, 0.7 * waits.seconds);
  RecordProperty("activations", testing::PrintToString(std::pair(ahead.seconds, waits.seconds)));
}

// Trains with ZeRO-3 on two nodes of two GPUs: each block's weights are gathered from the other three ranks, which get its gradients.
TEST_F(GpuShares, RanksComputeWhileTheyGather) {
  request_.sequence_length = 4096;
  request_.gpu_to_gpu = true;
  request_.scheduling.sharding = {0, 0, 4};
  rates_.reduce_scatter_bytes_per_s = rates_.all_gather_bytes_per_s = 4 * kGpuPortBytesPerS;
  PlacementSettings wishes = all_on(Tier::device);
  wishes.zero_stage = 3;
  wishes.order = parallel::Order::vertical;
  const double ahead = share(wishes), waits = share(waiting(wishes));
  EXPECT_GE(ahead, 0.7);
  EXPECT_LE(waits, 0.55);
  RecordProperty("zero_3", testing::PrintToString(std::pair(ahead, waits)));
}

}  // namespace
}  // namespace spillway::trainer::gpu_shares_test
