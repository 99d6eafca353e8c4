// Tests that a training run which DeepSpeed saved on two ranks can be continued from each of DeepSpeed's checkpoint layouts, and that its
// weights are a model for every command. tests/peers/deepspeed_checkpoints.py saved it, trained on and recorded the losses: ours equal them
// within the bounds of fp32, for any tiers and ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/safetensors/safetensors.h"
#include "tests/e2e/support_program.h"
#include "tests/support/fixtures.h"

namespace spillway::test::deepspeed_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Bounds the difference of two losses, which are sums of 3,000 terms in fp32 in another order at each
// of three AdamW steps: a loss of 4 may differ by a few units in the last place.
constexpr double kBound = 2e-6;

struct DeepSpeedCheckpoint : testing::Test {
  Workplace at;
  DeepSpeedCheckpoint() {
    fs::copy(data("deepspeed"), at / "saved", fs::copy_options::recursive);
    std::istringstream numbers(at.read("saved/tokens.txt"));
    std::string tokens;
    for (int token = 0; numbers >> token;) tokens += {static_cast<char>(token), '\0'};
    at.write("tokens.bin", tokens);
  }

  Args going_on(const std::string& how, const std::string& out, const std::string& more = "") const {
    std::istringstream words("train --model saved --resume saved/" + how + " --data tokens.bin --out " + out +
                             " --steps 6 --sequence-length 16 --global-batch-size 4 --micro-batch-size 2 --device cpu --learning-rate 0.01"
                             " --lr-schedule constant --warmup-steps 0 --betas 0.9,0.95 --weight-decay 0.1 --decay-all " +
                             more);
    return {std::istream_iterator<std::string>(words), {}};
  }

  // Compares the losses of steps 4 to 6 with DeepSpeed's.
  void expect_deepspeeds_losses(const std::string& how, const std::string& out) const {
    const auto theirs = nlohmann::json::parse(at.read("saved/" + how + "/losses.json"));
    const std::vector<std::string> ours = at.metrics(out);
    ASSERT_EQ(ours.size(), 3u) << out;
    for (size_t i = 0; i < 3; ++i) {
      const auto line = nlohmann::json::parse(ours[i]);
      EXPECT_EQ(line["step"], i + 4);
      EXPECT_NEAR(line["loss"].get<double>(), theirs[i + 3].get<double>(), kBound) << how << " " << out << " " << ours[i];
    }
  }
};

TEST_F(DeepSpeedCheckpoint, GoesOnWithTheLossesThatDeepSpeedWouldHaveHad) {
  for (const std::string how : {"stage1", "stage2", "stage3", "robin", "universal"}) {
    const Finished f =
        at.spillway(going_on(how, how, how == "stage2" || how == "robin" ? "--optimizer-group bias|ln_:weight_decay=0" : ""));
    ASSERT_EQ(f.status, 0) << how << f.out << f.err;
    EXPECT_THAT(f.err, HasSubstr("continues at step 3 of 6 from")) << how;
    EXPECT_THAT(f.err, HasSubstr("12 rows in 3 steps")) << how;
    expect_deepspeeds_losses(how, how);
  }
}

// Shows that training goes on from a checkpoint of PEFT adapters that were saved without their base model.
TEST_F(DeepSpeedCheckpoint, AdaptersGoOnBesideTheirBase) {
  const Args args = with(going_on("lora", "lora", "--lora 4 --lora-alpha 8 --lora-targets c_attn"), "--model", "saved/lora/base");
  const Finished f = at.spillway(args);
  ASSERT_EQ(f.status, 0) << f.out << f.err;
  expect_deepspeeds_losses("lora", "lora");
  const Finished other = at.spillway(with(with(args, "--lora", "2"), "--out", "other"));
  EXPECT_EQ(other.status, 4) << other.err;
  EXPECT_THAT(
      other.err,
      HasSubstr("expected the adapter's base_model.model.transformer.h.0.attn.c_attn.lora_A.default.weight of shape [2, 12], got [4, 12]"));
  const Finished more = at.spillway(with(with(args, "--lora-targets", "c_attn,c_proj"), "--out", "other"));
  EXPECT_EQ(more.status, 4) << more.err;
  EXPECT_THAT(more.err, HasSubstr("c_proj.lora_A.default.weight of shape [4, 12], got none"));
}

TEST_F(DeepSpeedCheckpoint, WhereverItsBytesLieHere) {
  for (const auto& [out, more] : {std::pair("device", ""),
                                  {"host", "--place-optimizer host --place-gradients host --place-parameters host"},
                                  {"ranks", "--ranks 2 --zero-stage 3"},
                                  {"stages", "--ranks 2 --pipeline-stages 2"}}) {
    const Finished f = at.spillway(going_on("stage3", out, more));
    ASSERT_EQ(f.status, 0) << out << f.out << f.err;
    expect_deepspeeds_losses("stage3", out);
  }
  EXPECT_EQ(numbers_of(at.metrics("host")), numbers_of(at.metrics("device")));
  EXPECT_EQ(numbers_of(at.metrics("stages")), numbers_of(at.metrics("device")));
}

// Shows that in bf16 DeepSpeed's fp32 weights become the masters, and that the weights are these masters, rounded.
TEST_F(DeepSpeedCheckpoint, TakesTheFp32WeightsAsMasters) {
  const Finished f = at.spillway(with(going_on("stage1", "bf16", "--precision bf16"), "--steps", "3"));
  ASSERT_EQ(f.status, 0) << f.out << f.err;
  EXPECT_THAT(f.out, HasSubstr("finished: bf16 is at step 3 of 3"));
  const Finished g = at.spillway(going_on("stage1", "bf16", "--precision bf16"));
  ASSERT_EQ(g.status, 0) << g.out << g.err;
  const auto theirs = nlohmann::json::parse(at.read("saved/stage1/losses.json"));
  const auto line = nlohmann::json::parse(at.metrics("bf16").front());
  // matrix products in bf16 keep only 8 bits, and the loss is about 4
  EXPECT_NEAR(line["loss"].get<double>(), theirs[3].get<double>(), 4e-3);
}

// Shows that the same command continues its run, whatever ended it. The run's own checkpoint is newer than the one that the command names.
// Until the run has one, a restart uses the named one.
TEST_F(DeepSpeedCheckpoint, TheSameCommandGoesOnWhateverEndedIt) {
  const Args args = going_on("stage2", "run", "--optimizer-group bias|ln_:weight_decay=0");
  const Finished killed = at.spillway_until(
      with(args, "--steps", "100000"), [&] { return !at.metrics("run").empty(); }, SIGKILL);
  ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.out << killed.err;
  ASSERT_FALSE(fs::exists(at / "run/checkpoints"));
  const Finished again = at.spillway(args);
  ASSERT_EQ(again.status, 0) << again.out << again.err;
  EXPECT_THAT(again.err, HasSubstr("continues at step 3 of 6 from"));
  expect_deepspeeds_losses("stage2", "run");
  const Finished further = at.spillway(with(args, "--steps", "7"));
  EXPECT_THAT(further.err, HasSubstr("continues at step 6 of 7 from the last checkpoint"));
}

TEST_F(DeepSpeedCheckpoint, ItsWeightsAreAModelForEveryCommand) {
  fs::copy_file(at / "saved/config.json", at / "saved/stage3/config.json");
  const Finished f = at.spillway({"export", "saved/stage3", "--out", "exported"});
  ASSERT_EQ(f.status, 0) << f.out << f.err;
  const spillway::data::SafetensorsReader ours(at / "exported/model.safetensors"), theirs(at / "saved/stage3/expected.safetensors");
  for (const auto& tensor : ours.tensors()) {
    const auto* expected = theirs.find(tensor.name);
    ASSERT_TRUE(expected) << tensor.name;
    std::vector<double> got(static_cast<size_t>(tensor.shape.elems())), want(got);
    ours.read_wide(tensor, 0, got);
    theirs.read_wide(*expected, 0, want);
    EXPECT_EQ(got, want) << tensor.name;
  }
  EXPECT_EQ(ours.tensors().size() * 3, theirs.tensors().size());
}

TEST_F(DeepSpeedCheckpoint, InspectShowsWhatIsInIt) {
  const Finished f = at.spillway({"inspect", "saved/stage2"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("ZeRO-2 on 2 ranks, 12 rows in 3 steps"));
  EXPECT_THAT(f.out, testing::ContainsRegex("transformer.h.0.ln_1.weight +f32 +\\[12\\] +48 B +exp_avg exp_avg_sq"));
}

TEST_F(DeepSpeedCheckpoint, WhatDoesNotFitIsRefusedAndNothingIsLeft) {
  const auto refused = [&](const Args& args, int status, const std::string& why) {
    const Finished f = at.spillway(args);
    EXPECT_EQ(f.status, status) << f.out << f.err;
    EXPECT_THAT(f.err, HasSubstr(why));
    EXPECT_FALSE(fs::exists(at / "run/checkpoints")) << why;
  };
  refused(going_on("stage1", "run", "--optimizer lion"), 2, "saved exp_avg, exp_avg_sq: give the --optimizer");
  refused(going_on("stage1", "run", "--optimizer amsgrad"), 2, "this run's optimizer has the state max_exp_avg_sq of transformer.");
  refused(with(going_on("stage1", "run"), "--model", "gpt2-tiny"), 4, "are missing");
  refused(with(going_on("stage1", "run"), "--resume", "saved/none"), 4, "expected a checkpoint");
  refused(with(going_on("stage1", "run"), "--resume", "saved"), 4, "expected a checkpoint");
  refused(with(going_on("stage1", "run", "--lora 4"), "--model", "saved/lora/base"), 4, "expected the adapter's");
  fs::remove(at / "saved/stage3/global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt");
  refused(going_on("stage3", "run"), 4, "2 data-parallel ranks, but there are 1 files");
  const Finished f = at.spillway(with(going_on("stage1", "rows"), "--global-batch-size", "2"));
  EXPECT_EQ(f.status, 0) << f.out << f.err;
  EXPECT_THAT(f.err, AllOf(HasSubstr("had 4 rows"), HasSubstr("has 2: --global-batch-size")));
}

}  // namespace
}  // namespace spillway::test::deepspeed_checkpoint_test
