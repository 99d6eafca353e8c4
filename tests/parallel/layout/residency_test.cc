// Tests the residency table, which says for each ZeRO stage, tier and order of micro-batches how a group's weights and gradients are held.
// Instruction lists are generated and checked by this table.
#include "parallel/layout/residency.h"

#include <gtest/gtest.h>

#include "models/model.h"
#include "models/presets.h"

namespace spillway::parallel::residency_test {
namespace {

class Resolved : public testing::Test {
 protected:
  GroupResidency of(const Scheduling& s, Tier weights = Tier::device, Tier gradients = Tier::device, u16 group = 0) const {
    return resolve(layout_, Placement::uniform(layout_, weights, gradients, Tier::device), s)[group];
  }
  static Scheduling stage(int stage, int ranks = 3) { return {.sharding = {stage, 1, ranks}}; }

  const Layout layout_ = make_layout(models::build(models::preset("gpt2-tiny"), DType::f32));  // the weights of the first group are tied
};

TEST_F(Resolved, StagesSplitOneThingAfterAnother) {
  const Group& group = layout_.groups[0];
  const TileRange own = Sharding{1, 1, 3}.own(group);
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
    const GroupResidency r = of(stage(zero_stage));
    EXPECT_EQ(r.stepped, zero_stage >= 1 ? own : whole(group)) << zero_stage;
    EXPECT_EQ(r.gradients.split, zero_stage >= 2) << zero_stage;
    EXPECT_EQ(r.gradients.held, zero_stage >= 2 ? own : whole(group)) << zero_stage;
    EXPECT_EQ(r.weights.split, zero_stage == 3) << zero_stage;
    EXPECT_EQ(r.weights.held, zero_stage == 3 ? own : whole(group)) << zero_stage;
    EXPECT_EQ(r.weights_spread, zero_stage == 1 || zero_stage == 2) << zero_stage;
    EXPECT_FALSE(of(stage(zero_stage, 1)).weights.split || of(stage(zero_stage, 1)).gradients.split) << "alone, stage " << zero_stage;
  }
  EXPECT_TRUE(of(stage(1), Tier::host, Tier::host).weights.split) << "whole copies off the device only cost bytes";
  EXPECT_TRUE(of(stage(1), Tier::host, Tier::host).gradients.split);
}

TEST_F(Resolved, WhatMovesDoesSoBesideComputingWhereAnEngineCopies) {
  for (const bool engines : {false, true}) {
    const Scheduling s{.copy_engines = engines};
    EXPECT_FALSE(of(s).weights.moves || of(s).weights.beside);
    EXPECT_TRUE(of(s, Tier::host).weights.moves && of(s, Tier::nvme).weights.moves);
    EXPECT_EQ(of(s, Tier::host).weights.beside, engines);
    EXPECT_TRUE(of(s, Tier::nvme).weights.beside);
  }
}

// Shows that, if gradients move once per step, the gradients that several blocks have for a tied weight are added in device memory and
// only their sum is stored. Otherwise each block's gradient is stored by itself.
TEST_F(Resolved, OneUseRestsWhereGradientsTravelOnce) {
  ASSERT_TRUE(layout_.groups[0].tied());
  EXPECT_EQ(of({}).gradient_rests, (std::vector<bool>{true, true})) << "they are not moved";
  EXPECT_EQ(of({.micro_batches = 2}, Tier::device, Tier::host).gradient_rests, (std::vector<bool>{true, true}));
  EXPECT_EQ(of({}, Tier::device, Tier::host).gradient_rests, (std::vector<bool>{true, false}));
  EXPECT_EQ(of({}, Tier::device, Tier::nvme).gradient_rests, (std::vector<bool>{false, false})) << "the first block's stays for its Step";
  EXPECT_TRUE(of({}, Tier::device, Tier::nvme).gradient_stays);
  EXPECT_FALSE(of({}, Tier::device, Tier::nvme, static_cast<u16>(layout_.groups.size() - 1)).gradient_stays);
}

TEST_F(Resolved, RoundedGradientsRestInTwoBytesWhereNothingIsAddedToThem) {
  const auto types = [&](i64 micro_batches, Tier gradients) {
    return of({.micro_batches = micro_batches, .format = optim::plain_format(DType::f32), .round_gradients = true}, Tier::device, gradients)
        .resting_gradient;
  };
  EXPECT_EQ(types(1, Tier::host), (std::vector{DType::bf16, DType::f32}));
  EXPECT_EQ(types(1, Tier::device), (std::vector{DType::f32, DType::f32}));
  EXPECT_EQ(types(2, Tier::host), (std::vector{DType::f32, DType::f32}));
}

TEST_F(Resolved, FrozenGroupsHaveWeightsAlone) {
  Layout frozen = layout_;
  frozen.groups[0].frozen = true;
  const GroupResidency r = resolve(frozen, Placement::uniform(frozen, Tier::device, Tier::nvme, Tier::nvme), stage(2))[0];
  EXPECT_FALSE(r.gradients.moves || r.gradient_stays || r.weights_spread);
}

}  // namespace
}  // namespace spillway::parallel::residency_test
