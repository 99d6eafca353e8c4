// Tests that the planner uses memory for keeping the logits from forward to backward if nothing more useful needs it. All ranks decide
// alike, and losses and weights stay the same to the bit.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/model.h"
#include "models/presets.h"
#include "tests/app/program/support_ranks.h"
#include "trainer/plan/choice.h"
#include "trainer/plan/reasons.h"
#include "trainer/plan/search.h"
#include "trainer/plan/stage_plans.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::app::kept_logits_test {
namespace {

using parallel::Tier;
using Json = nlohmann::json;

constexpr i64 kLogits = i64{4} * 16 * 1024 * 50304;  // bytes of fp32 logits; each row's 50257 columns are padded to a multiple of 64

class KeptLogits : public testing::TestWithParam<Device::Kind> {
 protected:
  KeptLogits() : model_(models::build(models::preset("gpt2-124m"), DType::bf16)) {
    request_.model = &model_;
    request_.layout = parallel::make_layout(model_);
    request_.scheduling.format = optim::plain_format(DType::bf16);
    request_.micro_batch_size = 16;
    request_.sequence_length = 1024;
    request_.device = GetParam();
    request_.scheduling.copy_engines = GetParam() == Device::Kind::cuda;
    rates_ = make_rates({}, GetParam(), DType::bf16, {}, {});
  }
  ChosenPlan chosen(i64 device_bytes, const PlacementSettings& wishes = {}) const {
    return choose_stage_plans(request_, wishes, {.bytes = {device_bytes, 64 * kGiB, 0}}, rates_);
  }
  static PlacementSettings all_there() {
    PlacementSettings wishes;
    wishes.parameters = wishes.gradients = wishes.optimizer = wishes.activations = PlacementWish::whole(Tier::device);
    wishes.recompute = Recompute::none;
    return wishes;
  }
  double seconds(const ChosenPlan& chosen) const { return step_seconds(chosen.plan, model_, rates_); }
  static const std::string& logits_line(const ChosenPlan& chosen) {
    static const std::string none;
    const auto at = std::ranges::find_if(chosen.why, [](const std::string& line) { return line.starts_with("logits: "); });
    return at == chosen.why.end() ? none : *at;
  }

  nn::Sequential model_;
  parallel::PlanRequest request_;
  Rates rates_;
};

INSTANTIATE_TEST_SUITE_P(On, KeptLogits, testing::Values(Device::Kind::cpu, Device::Kind::cuda),
                         [](const auto& device) { return device.param == Device::Kind::cuda ? "Gpu" : "Cpu"; });

TEST_P(KeptLogits, WhereThereIsRoomToTheByte) {
  const ChosenPlan kept = chosen(64 * kGiB, all_there());
  EXPECT_TRUE(kept.plan.placement.keeps_logits);
  EXPECT_NEAR(static_cast<double>(kept.plan.logits_bytes), kLogits, 64 * 4 * 16 * 1024);
  EXPECT_NE(logits_line(kept).find("logits: kept on the device from forward to backward, 3.07 GiB"), std::string::npos)
      << logits_line(kept);
  EXPECT_TRUE(chosen(kept.plan.total[0], all_there()).plan.placement.keeps_logits);
  const ChosenPlan again = chosen(kept.plan.total[0] - 1, all_there());
  EXPECT_FALSE(again.plan.placement.keeps_logits);
  EXPECT_EQ(logits_line(again).find("logits: recomputed in pieces by backward, 3.07 GiB"), 0u) << logits_line(again);
  EXPECT_GT(kept.plan.total[0], again.plan.total[0] + kLogits / 2);
  EXPECT_FALSE(chosen(again.plan.total[0], all_there()).plan.placement.keeps_logits) << "it fits without";
  const double product_s = 2.0 * 16 * 1024 * 50257 * 768 / rates_.flops;
  EXPECT_NEAR(seconds(again) - seconds(kept), product_s, 1e-3 * product_s);
}

// If memory is short by a byte, logits are kept only if freeing memory for them costs less time than computing them
// again. Moving optimizer state out of a GPU's memory costs more than that. Recomputing some blocks costs less.
TEST_P(KeptLogits, TakeTheRoomOfWhatIsWorthLess) {
  const i64 nearly = chosen(64 * kGiB, all_there()).plan.total[0] - 1;
  const ChosenPlan again = chosen(nearly, all_there());
  PlacementSettings state = all_there(), blocks = all_there();
  state.optimizer = {};
  blocks.recompute = Recompute::automatic;
  const ChosenPlan moved = chosen(nearly, state), run_again = chosen(nearly, blocks);
  const bool on_gpu = GetParam() == Device::Kind::cuda;
  EXPECT_EQ(moved.plan.placement.keeps_logits, !on_gpu) << memory_table(moved.plan, {});
  if (on_gpu) {
    EXPECT_EQ(moved.plan.placement.optimizer, again.plan.placement.optimizer);
  }
  EXPECT_TRUE(run_again.plan.placement.keeps_logits);
  EXPECT_EQ(run_again.plan.placement.activations.front(), parallel::ActivationPolicy{.recompute = true});
  EXPECT_EQ(run_again.plan.placement.activations.back(), parallel::ActivationPolicy{});
  EXPECT_LT(seconds(run_again), seconds(again));
  EXPECT_LE(run_again.plan.total[0], nearly);
}

TEST_P(KeptLogits, AreNotThoseThatWouldSpill) {
  PlacementSettings spilled = all_there();
  spilled.activations = PlacementWish::whole(Tier::host);
  spilled.order = parallel::Order::vertical;
  request_.scheduling.micro_batches = 2;
  EXPECT_FALSE(chosen(64 * kGiB, spilled).plan.placement.keeps_logits);
  spilled.order = parallel::Order::micro_batch;
  // While a GPU waits for the copies of spilled activations, it computes the logits again in no time of its own. A faster link ends that.
  if (GetParam() == Device::Kind::cuda) {
    EXPECT_FALSE(chosen(64 * kGiB, spilled).plan.placement.keeps_logits) << "keeping them gains nothing";
    rates_.unit.copy_s /= 100;
  }
  EXPECT_TRUE(chosen(64 * kGiB, spilled).plan.placement.keeps_logits) << "the head's activations stay";
}

TEST_P(KeptLogits, AreNotAskedForWhereFewAreKeptAnyway) {
  request_.micro_batch_size = 1;
  request_.sequence_length = 512;
  const ChosenPlan few = chosen(64 * kGiB);
  EXPECT_EQ(few.plan.logits_bytes, 0);
  EXPECT_FALSE(few.plan.placement.keeps_logits);
  EXPECT_EQ(logits_line(few), "");
}

TEST_P(KeptLogits, AreChosenForAllRanks) {
  const Shares none{{}, "", false};
  const parallel::Plan kept = chosen(64 * kGiB).plan;
  const auto adopted = [&](const std::string& choice) {
    parallel::PlanRequest request = request_;
    Shares shares = none;
    apply_choice(parse_choice(choice), request, shares);
    return make_plan(request);
  };
  const std::string text = to_text(choice_of(kept, none));
  EXPECT_EQ(adopted(text).total, kept.total);
  EXPECT_EQ(to_text(choice_of(adopted(text), none)), text);
}

// The first rank of a pipeline decides for all: the last rank, which computes the logits, keeps them if the first rank's plan says so.
TEST_P(KeptLogits, OfALaterStage) {
  request_.scheduling.pipeline = {.rank = 0, .ranks = 2};
  request_.scheduling.micro_batches = 2;
  const ChosenPlan first = chosen(64 * kGiB);
  EXPECT_TRUE(first.plan.placement.keeps_logits);
  EXPECT_EQ(first.plan.logits_bytes, 0);
  EXPECT_NE(first.why.back().find("; logits: kept on the device"), std::string::npos) << first.why.back();
  parallel::PlanRequest request = request_;
  Shares none{{}, "", false};
  apply_choice(parse_choice(to_text(choice_of(first.plan, none))), request, none);
  const std::vector<parallel::Plan> stages = plans_of_stages(request, first.plan);
  EXPECT_EQ(logits_text(stages[1]).find("logits: kept"), 0u) << logits_text(stages[1]);
  check_meetings(stages);
}

// Trains a model whose head is as wide as GPT-2's and that has almost no other parameters.
struct KeptLogitsRelease : testing::Test {
  TemporaryFolder folder;
  std::string model, text;

  KeptLogitsRelease() {
    folder.write("model/config.json",
                 R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 1, "n_positions": 512, "vocab_size": 50257})");
    model = (folder.path() / "model").string();
    std::string words;
    for (int i = 0; i < 2000; ++i) words += "and it was so. ";
    text = folder.write("text.txt", words);
  }
  std::vector<std::string> train(const std::string& out, int steps, const std::string& device_memory) const {
    std::vector<std::string> args = {"--model", model, "--data", text, "--out", (folder.path() / out).string()};
    for (const std::string& arg : {std::string("--steps"), std::to_string(steps), std::string("--device-memory"), device_memory})
      args.push_back(arg);
    for (const char* arg : {"--micro-batch-size",
                            "3",
                            "--sequence-length",
                            "512",
                            "--threads",
                            "1",
                            "--host-memory",
                            "256MiB",
                            "--from-scratch",
                            "--place-parameters",
                            "device",
                            "--place-gradients",
                            "device",
                            "--place-optimizer",
                            "device",
                            "--recompute",
                            "none",
                            "--lr-schedule",
                            "constant",
                            "--warmup-steps",
                            "1"})
      args.push_back(arg);
    return args;
  }
  void run(const std::string& out, int steps, const std::string& device_memory, const std::string& line) const {
    const Outcome outcome = train_on(1, train(out, steps, device_memory)).front();
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("logits: " + line), std::string::npos) << outcome.err;
  }
  std::vector<Json> metrics(const std::string& out) const {
    std::ifstream file(folder.path() / out / "metrics.jsonl");
    std::vector<Json> rows;
    for (std::string row; std::getline(file, row);) rows.push_back(Json::parse(row));
    return rows;
  }
};

TEST_F(KeptLogitsRelease, ARunGoesOnWithoutThemAndTheBytesAreThePlans) {
  run("kept", 2, "600MiB", "kept");
  run("both", 1, "600MiB", "kept");
  run("both", 2, "300MiB", "recomputed in pieces");
  const std::string kept = (folder.path() / "kept").string(), both = (folder.path() / "both").string();
  EXPECT_EQ(numbers_in(both), numbers_in(kept));
  EXPECT_TRUE(state_in(both, 2) == state_in(kept, 2));
  for (const auto& [name, memory] : {std::pair("kept", "600MiB"), {"both", "300MiB"}}) {
    std::vector<std::string> plan = train("unused", 2, memory);
    plan.insert(plan.begin(), {"plan", "--json"});
    const Outcome planned = run_app(plan);
    ASSERT_EQ(planned.status, 0) << planned.err;
    EXPECT_EQ(metrics(name).back()["peak_bytes"]["device"], Json::parse(planned.out)["total_bytes"]["device"]) << name;
  }
}

}  // namespace
}  // namespace spillway::app::kept_logits_test
