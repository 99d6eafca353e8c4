// Tests how command-line flags become the requests (pipeline, tiers of the data, overlap) that the planner gets.
#include "trainer/plan/wishes.h"
#include "trainer/settings/placement_settings.h"

#include <gtest/gtest.h>

#include "tests/trainer/support_trainer.h"
#include "trainer/settings/pipeline_wish.h"

namespace spillway::trainer::wishes_test {
namespace {

TEST(Wishes, OneRankIsFreeInItsOrderUnlessASchedulesIsAskedFor) {
  const auto order_of = [](const std::vector<std::string>& flags) {
    TrainConfig config = train_config(flags);
    resolve_order(config);
    return config.placement->order;
  };
  EXPECT_FALSE(order_of({}));
  EXPECT_EQ(order_of({"--pipeline-schedule", "vertical"}), parallel::Order::vertical);
  EXPECT_EQ(order_of({"--pipeline-schedule", "1f1b"}), parallel::Order::micro_batch);
}

TEST(Wishes, TheZeroStageIsOpenUnlessSaid) {
  EXPECT_FALSE(train_config({}).placement->zero_stage);
  EXPECT_EQ(train_config({"--zero-stage", "3"}).placement->zero_stage, 3);
}

TEST(Wishes, MayUseATierUnlessAllIsSaidToLieElsewhere) {
  PlacementSettings wishes;
  EXPECT_FALSE(uses_tier(wishes, Tier::nvme));
  EXPECT_TRUE(may_use_tier(wishes, Tier::nvme));
  wishes.parameters = wishes.gradients = wishes.optimizer = wishes.activations = PlacementWish::whole(Tier::device);
  EXPECT_FALSE(may_use_tier(wishes, Tier::nvme));
  wishes.optimizer = PlacementWish::whole(Tier::nvme);
  EXPECT_TRUE(uses_tier(wishes, Tier::nvme));
  EXPECT_TRUE(may_use_tier(wishes, Tier::nvme));
}

TEST(Wishes, StateAndPrecisionMustGoTogether) {
  const StateWishes split{.master = optim::Master::split}, rounded{.round_gradients = true};
  EXPECT_EQ(split.format(Precision::bf16).master, optim::Master::split);
  EXPECT_NE(message_of([&] { split.format(Precision::fp16); }).find("[--master-weights]"), std::string::npos);
  EXPECT_EQ(rounded.format(Precision::bf16).weight, DType::bf16);
  EXPECT_NE(message_of([&] { rounded.format(Precision::fp64); }).find("[--gradient-dtype]"), std::string::npos);
}

TEST(Wishes, OfInferenceNothingIsTrained) {
  Settings settings = settings_of(Command::evaluate, {"--model", "m", "--data", "d.txt", "--nvme", "/tmp", "--place-parameters", "nvme"});
  const PlacementSettings& wishes = *std::get<EvaluateConfig>(settings).placement;
  EXPECT_EQ(wishes.parameters, PlacementWish::whole(Tier::nvme));
  EXPECT_EQ(wishes.gradients, PlacementWish::whole(Tier::device));
  EXPECT_EQ(wishes.optimizer, PlacementWish::whole(Tier::device));
}

}  // namespace
}  // namespace spillway::trainer::wishes_test
