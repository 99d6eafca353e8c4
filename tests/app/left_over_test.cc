// What a plan leaves of its budgets holds groups of what auto would spill; explicit wishes stay, and no number changes.
#include "app/left_over.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/fit.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/app/support_app.h"

namespace spillway::app {
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
  ChosenPlan plan(const TierBudgets& budgets, PlanWishes wishes = {}) const {
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

// 1.4 GiB of state, and room for 1 GiB of it.
const TierBudgets kTight{.bytes = {900 * kMiB, kGiB, 10 * kGiB}};

TEST_F(LeftOver, StateGoesToTheHostGroupByGroup) {
  const ChosenPlan chosen = plan(kTight);
  EXPECT_GT(count(chosen, Tier::nvme), 0u) << memory_table(chosen.plan, kTight);
  EXPECT_GT(count(chosen, Tier::host), 0u) << memory_table(chosen.plan, kTight);
  EXPECT_EQ(excess(chosen.plan, kTight), (std::array<i64, offload::kTiers>{}));
  EXPECT_NE(chosen.why.back().find("left-over memory: "), std::string::npos) << chosen.why.back();
}

TEST_F(LeftOver, AnExplicitWishStays) {
  PlanWishes wishes;
  wishes.optimizer = PlacementWish::whole(Tier::nvme);
  const ChosenPlan chosen = plan(kTight, wishes);
  EXPECT_EQ(count(chosen, Tier::nvme), chosen.plan.layout.groups.size());
}

// Losses of a run whose state is part on the host, part on nvme are those of one in memory.
TEST(LeftOverTrain, TheSameBits) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "and it was so. ";
  const std::string data = folder.write("t.txt", text);
  const auto losses = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> args = {"train",
                                     "--model",
                                     "gpt2-tiny",
                                     "--data",
                                     data,
                                     "--sequence-length",
                                     "32",
                                     "--steps",
                                     "3",
                                     "--threads",
                                     "1",
                                     "--quiet",
                                     "--no-final-checkpoint",
                                     "--out",
                                     (folder.path() / name).string()};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = run_app(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::vector<double> all;
    std::ifstream metrics(folder.path() / name / "metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) all.push_back(nlohmann::json::parse(line)["loss"]);
    return all;
  };
  const auto in_memory = losses("memory", {"--device-memory", "256MiB"});
  EXPECT_EQ(in_memory.size(), 3u);
  EXPECT_EQ(in_memory, losses("mixed", {"--device-memory", "64MiB", "--host-memory", "64MiB", "--nvme", (folder.path() / "s").string(),
                                        "--place-parameters", "device=1MiB,nvme=rest", "--place-gradients", "host=1MiB,nvme=rest",
                                        "--place-optimizer", "host=3MiB,nvme=rest"}));
}

}  // namespace
}  // namespace spillway::app
