// Tests which blocks' optimizer steps are deferred to the next forward. If a drive cannot do all of them
// during a backward, some are deferred, so that the drive is busy in both passes. Otherwise none is.
#include <gtest/gtest.h>

#include "models/model.h"
#include "models/presets.h"
#include "tests/trainer/support_trainer.h"
#include "trainer/plan/search.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer::spread_steps_test {
namespace {

using parallel::Tier;

class SpreadSteps : public testing::Test {
 protected:
  SpreadSteps() : model_(models::build(models::preset("gpt2-124m"), DType::bf16)) {
    request_.model = &model_;
    request_.layout = parallel::make_layout(model_);
    request_.scheduling.format = optim::plain_format(DType::bf16);
    request_.sequence_length = 256;
    rates_.disk_read_bytes_per_s = rates_.disk_write_bytes_per_s = 3e9;
    rates_.machine.cores = 16;
  }
  parallel::Plan plan(OptimizerOverlap overlap) const {
    PlacementSettings wishes;
    wishes.optimizer = PlacementWish::whole(Tier::nvme);
    wishes.overlap = overlap;
    return choose_plan(request_, wishes, {.bytes = {kGiB, kGiB, 10 * kGiB}}, rates_).plan;
  }
  StepCost cost(const parallel::Plan& plan) const { return predict(plan, {}, model_, rates_); }

  nn::Sequential model_;
  parallel::PlanRequest request_;
  Rates rates_;
};

TEST_F(SpreadSteps, KeepTheDriveBusy) {
  rates_.flops = 4e11;
  const parallel::Plan chosen = plan(OptimizerOverlap::automatic);
  EXPECT_TRUE(chosen.train_when_clipping);
  EXPECT_GT(chosen.scheduling.deferred_sixteenths, 0);
  EXPECT_LT(chosen.scheduling.deferred_sixteenths, parallel::kAllSixteenths);
  const StepCost spread = cost(chosen);
  const auto busy = [](const StepCost& cost) { return cost.phase_ms.at("disk") / 1e3 / cost.seconds; };
  // The test requires that the drive is idle only between the last deferred optimizer step and the first gradient, while the head and one
  // or two layers compute.
  const auto seconds_of = [&](u16 block) {
    const BlockSeconds s = rates_.block(block, block_flops(request_.layout, model_, block, 256));
    return s.forward + s.backward;
  };
  const auto head = static_cast<u16>(request_.layout.blocks.size() - 1);
  const double inevitable_s = seconds_of(head) + 2 * seconds_of(5);
  EXPECT_LE((1 - busy(spread)) * spread.seconds, inevitable_s);
  for (const OptimizerOverlap whole : {OptimizerOverlap::backward, OptimizerOverlap::forward}) {
    const StepCost other = cost(plan(whole));
    EXPECT_LT(spread.seconds, 0.95 * other.seconds);
    EXPECT_GT((1 - busy(other)) * other.seconds, inevitable_s);
  }
}

TEST_F(SpreadSteps, StandInsideTheBackwardWhereTheyFit) {
  rates_.flops = 1e11;
  const parallel::Plan chosen = plan(OptimizerOverlap::automatic);
  EXPECT_EQ(chosen.scheduling.deferred_sixteenths, 0);
  EXPECT_FALSE(chosen.scheduling.defers());
}

}  // namespace
}  // namespace spillway::trainer::spread_steps_test
