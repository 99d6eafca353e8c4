// Tests that memory which a plan leaves unused takes parameter groups that automatic placement would otherwise spill. Data whose tier the
// user gave stays in that tier, and no loss changes.
#include "trainer/plan/left_over.h"
#include "trainer/settings/placement_settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/model.h"
#include "models/presets.h"
#include "tests/app/support_app.h"
#include "trainer/plan/freeze.h"
#include "trainer/plan/search.h"

namespace spillway::app::left_over_test {
namespace {

using parallel::Tier;

class LeftOver : public testing::Test {
 protected:
  LeftOver() : model_(models::build(models::preset("gpt2-124m"), DType::bf16)) {
    request_.model = &model_;
    request_.layout = parallel::make_layout(model_);
    request_.scheduling.format = optim::plain_format(DType::bf16);
    request_.sequence_length = 32;
    rates_.disk_read_bytes_per_s = rates_.disk_write_bytes_per_s = 1e8;
  }
  ChosenPlan plan(const TierBudgets& budgets, PlacementSettings wishes = {}) const {
    wishes.parameters = wishes.gradients = wishes.activations = PlacementWish::whole(Tier::device);
    wishes.overlap = OptimizerOverlap::none;
    return choose_plan(request_, wishes, budgets, rates_);
  }
  static size_t count(const ChosenPlan& chosen, Tier tier) {
    const auto& tiers = chosen.plan.placement.optimizer;
    return static_cast<size_t>(std::ranges::count(tiers, tier));
  }
  nn::Sequential model_;
  parallel::PlanRequest request_;
  Rates rates_;
};

// Limits each tier, in bytes. The model's state takes 1.4 GiB, and the host tier has room for 1 GiB of it.
const TierBudgets kTight{.bytes = {900 * kMiB, kGiB, 10 * kGiB}};

TEST_F(LeftOver, StateGoesToTheHostGroupByGroup) {
  const ChosenPlan chosen = plan(kTight);
  EXPECT_GT(count(chosen, Tier::nvme), 0u) << memory_table(chosen.plan, kTight);
  EXPECT_GT(count(chosen, Tier::host), 0u) << memory_table(chosen.plan, kTight);
  EXPECT_EQ(excess(chosen.plan, kTight), (std::array<i64, offload::kTiers>{}));
  EXPECT_NE(chosen.why.back().find("left-over memory: "), std::string::npos) << chosen.why.back();
}

// If computing a step takes minutes, moving fewer bytes gains no time, and the plan's explanation has no line "left-over memory".
TEST_F(LeftOver, WhatGainsNothingIsNotSaid) {
  rates_.flops = 1e9;
  rates_.disk_read_bytes_per_s = rates_.disk_write_bytes_per_s = 1e11;
  const ChosenPlan chosen = plan(kTight);
  for (const std::string& line : chosen.why) EXPECT_EQ(line.find("left-over memory: "), std::string::npos) << line;
  EXPECT_FALSE(chosen.why.back().empty());
}

TEST_F(LeftOver, AnExplicitWishStays) {
  PlacementSettings wishes;
  wishes.optimizer = PlacementWish::whole(Tier::nvme);
  const ChosenPlan chosen = plan(kTight, wishes);
  EXPECT_EQ(count(chosen, Tier::nvme), chosen.plan.layout.groups.size());
}

// Host memory goes to gradients that would otherwise travel to nvme. Block 0's gradient stays in its buffer on the
// device until its optimizer step and never travels, so it gets no host memory although block 0 comes first in order.
TEST_F(LeftOver, AGradientThatRestsNowhereStaysWhereItIs) {
  PlacementSettings wishes;
  wishes.parameters = wishes.optimizer = PlacementWish::whole(Tier::nvme);
  wishes.activations = PlacementWish::whole(Tier::device);
  wishes.overlap = OptimizerOverlap::none;
  const TierBudgets tight{.bytes = {650 * kMiB, 400 * kMiB, 10 * kGiB}};
  const ChosenPlan chosen = choose_plan(request_, wishes, tight, rates_);
  const auto& gradients = chosen.plan.placement.gradients;
  EXPECT_GT(std::ranges::count(gradients, Tier::host), 0) << memory_table(chosen.plan, tight);
  for (const parallel::Group& g : chosen.plan.layout.groups) {
    if (g.owner_block == 0) {
      EXPECT_EQ(gradients[g.id], Tier::nvme);
    }
  }
}

// The largest group of weights stays on the device first: the buffer for weights in transit is as large as the largest spilled group, so
// keeping that group takes no more memory. Of equally large groups, those that stay are spread evenly among those that are spilled.
TEST_F(LeftOver, TheLargestWeightsStayFirstAndEqualsAtEvenDistances) {
  freeze_parameters(model_, {"*.attn.*", "*.mlp.*", "*.wte.*"});
  request_.layout = parallel::make_layout(model_);
  PlacementSettings wishes;
  wishes.gradients = wishes.optimizer = wishes.activations = PlacementWish::whole(Tier::device);
  wishes.overlap = OptimizerOverlap::none;
  TierBudgets budgets{.bytes = {10 * kGiB, 20 * kMiB, 10 * kGiB}};
  PlacementSettings all_spill = wishes;
  all_spill.parameters = PlacementWish::whole(Tier::nvme);
  const parallel::Plan least = choose_plan(request_, all_spill, budgets, rates_).plan;
  const auto blocks_bytes = 12 * 2 * 7'087'872;  // bytes of all blocks' weights in bf16
  budgets.bytes[0] = least.total[0] + blocks_bytes / 2;
  const ChosenPlan chosen = choose_plan(request_, wishes, budgets, rates_);
  const auto& tiers = chosen.plan.placement.parameters;
  EXPECT_EQ(excess(chosen.plan, budgets), (std::array<i64, offload::kTiers>{}));
  EXPECT_EQ(tiers[0], Tier::device) << memory_table(chosen.plan, budgets);
  EXPECT_LT(chosen.plan.moving_slab_bytes, least.moving_slab_bytes / 2);
  std::vector<bool> stays;  // for each transformer block, whether its weights stay on the device
  for (const parallel::Group& g : chosen.plan.layout.groups) {
    if (chosen.plan.held_weights(g).count() * parallel::kTileElems > 5'000'000 && g.id != 0) stays.push_back(tiers[g.id] == Tier::device);
  }
  ASSERT_EQ(stays.size(), 12u);
  const auto staying = std::ranges::count(stays, true);
  EXPECT_GE(staying, 5) << memory_table(chosen.plan, budgets);
  EXPECT_LE(staying, 11) << memory_table(chosen.plan, budgets);
  for (size_t b = 0; b + 3 < stays.size(); ++b) EXPECT_TRUE(stays[b] || stays[b + 1] || stays[b + 2] || stays[b + 3]) << b;
}

// If the activations of all blocks do not fit, most blocks are recomputed or
// spilled, and the last blocks keep their activations in the memory that is left.
TEST_F(LeftOver, TheLastBlocksKeepTheirActivations) {
  request_.micro_batch_size = 4;
  request_.sequence_length = 256;
  rates_.unit.copy_s = 1e-9;
  PlacementSettings wishes;
  wishes.parameters = wishes.gradients = wishes.optimizer = PlacementWish::whole(Tier::device);
  wishes.overlap = OptimizerOverlap::none;
  const auto device_bytes = [&](const PlacementSettings& w) {
    return choose_plan(request_, w, {.bytes = {100 * kGiB, 4 * kGiB, 0}}, rates_).plan.total[0];
  };
  PlacementSettings again = wishes, none = wishes, spilled = wishes;
  again.recompute = Recompute::block;
  again.activations = none.activations = PlacementWish::whole(Tier::device);
  none.recompute = spilled.recompute = Recompute::none;
  spilled.activations = PlacementWish::whole(Tier::host);
  const i64 most = device_bytes(none);
  for (const bool spills : {false, true}) {
    const i64 least = device_bytes(spills ? spilled : again);
    ASSERT_LT(least, most);
    PlacementSettings w = wishes;
    if (spills) w.recompute = Recompute::none;
    const TierBudgets budgets{.bytes = {(least + most) / 2, spills ? 4 * kGiB : 64 * kMiB, 0}};
    const ChosenPlan chosen = choose_plan(request_, w, budgets, rates_);
    const auto& policies = chosen.plan.placement.activations;
    const auto kept = std::ranges::count(policies, parallel::ActivationPolicy{});
    EXPECT_GT(kept, 2) << memory_table(chosen.plan, budgets);
    EXPECT_LT(kept, std::ssize(policies)) << memory_table(chosen.plan, budgets);
    EXPECT_EQ(policies.back(), parallel::ActivationPolicy{});
    EXPECT_EQ(policies.front(), (parallel::ActivationPolicy{!spills, spills ? Tier::host : Tier::device}));
    EXPECT_EQ(excess(chosen.plan, budgets), (std::array<i64, offload::kTiers>{}));
    EXPECT_NE(chosen.why.back().find("left-over memory: the last "), std::string::npos) << chosen.why.back();
  }
}

// Trains gpt2-tiny for three steps in run folder `name` and returns the losses. Stores what the run wrote to stderr in `log`, if given.
std::vector<double> losses(const TemporaryFolder& folder, const std::string& name, const std::vector<std::string>& more,
                           std::string* log = nullptr) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "and it was so. ";
  std::vector<std::string> args = {"train", "--model", "gpt2-tiny", "--data", folder.write("t.txt", text)};
  for (const char* arg : {"--steps", "3", "--threads", "1", "--no-final-checkpoint", "--out"}) args.push_back(arg);
  args.push_back((folder.path() / name).string());
  args.insert(args.end(), more.begin(), more.end());
  const Outcome outcome = run_app(args);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  if (log) *log = outcome.err;
  std::vector<double> all;
  std::ifstream metrics(folder.path() / name / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) all.push_back(nlohmann::json::parse(line)["loss"]);
  EXPECT_EQ(all.size(), 3u);
  return all;
}

// A run whose state is partly on the host and partly on nvme has the same losses, to the bit, as a run whose state is in memory.
TEST(LeftOverTrain, TheSameBits) {
  const TemporaryFolder folder;
  const auto in_memory = losses(folder, "memory", {"--sequence-length", "32", "--device-memory", "256MiB"});
  EXPECT_EQ(in_memory, losses(folder, "mixed",
                              {"--sequence-length", "32", "--device-memory", "64MiB", "--host-memory", "64MiB", "--nvme",
                               (folder.path() / "s").string(), "--place-parameters", "device=1MiB,nvme=rest", "--place-gradients",
                               "host=1MiB,nvme=rest", "--place-optimizer", "host=3MiB,nvme=rest"}));
}

// A run that recomputes or spills all but its last blocks has the same losses, to the bit, as a run that keeps all activations.
TEST(LeftOverTrain, TheSameBitsWhereTheLastBlocksKeepTheirActivations) {
  const TemporaryFolder folder;
  const auto with = [](std::vector<std::string> more) {
    for (const char* arg : {"--sequence-length", "128", "--micro-batch-size", "4", "--place-parameters", "device", "--place-gradients",
                            "device", "--place-optimizer", "device", "--host-memory", "64MiB"})
      more.push_back(arg);
    return more;
  };
  const auto kept = losses(folder, "kept", with({"--device-memory", "256MiB"}));
  for (const auto& [flag, value] : {std::pair("--place-activations", "device"), {"--recompute", "none"}}) {
    std::string log;
    EXPECT_EQ(kept, losses(folder, value, with({"--device-memory", "28MiB", flag, value}), &log));
    EXPECT_NE(log.find(" blocks "), std::string::npos) << log;
    EXPECT_NE(log.find(", the last "), std::string::npos) << log;
  }
}

}  // namespace
}  // namespace spillway::app::left_over_test
