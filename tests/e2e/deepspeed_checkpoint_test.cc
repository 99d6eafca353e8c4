// A training run that DeepSpeed saved at two ranks goes on here, from each of the ways in which it saves (tests/peers/deepspeed_checkpoints.py
// made them, trained on and wrote down the losses): the same losses to the bounds of fp32, whatever the tiers and ranks here. And its
// weights are a model for every command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/e2e/support_program.h"
#include "tests/support/fixtures.h"

namespace spillway::test::deepspeed_checkpoint_test {
namespace {

namespace fs = std::filesystem;

// Sums of 3,000 terms in fp32, in another order at each of three steps of AdamW: a few units in the last place of a loss of 4.
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

  Args going_on(const std::string& how, const std::string& out, const Args& more = {}) const {
    Args args = {"train", "--model", "saved/" + how, "--resume", "saved/" + how, "--data", "tokens.bin", "--out", out,
                 "--steps", "6", "--sequence-length", "16", "--global-batch-size", "4", "--micro-batch-size", "2", "--device", "cpu",
                 "--learning-rate", "0.01", "--lr-schedule", "constant", "--warmup-steps", "0", "--adam-betas", "0.9,0.95",
                 "--weight-decay", "0.1", "--optimizer-group", ".*:weight_decay=0.1", "--max-grad-norm", "1", "--validation-fraction", "0"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  // Of steps 4 to 6 here and there.
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
  for (const std::string how : {"stage1", "stage2", "stage3", "universal"}) {
    const Args groups = how == "stage2" ? Args{"--optimizer-group", "bias|ln_:weight_decay=0"} : Args{};
    const Finished f = at.spillway(going_on(how, how, groups));
    ASSERT_EQ(f.status, 0) << how << f.out << f.err;
    EXPECT_THAT(f.err, testing::HasSubstr("continues at step 3 of 6 from")) << how;
    EXPECT_THAT(f.err, testing::HasSubstr("12 rows in 3 steps")) << how;
    expect_deepspeeds_losses(how, how);
  }
}

}  // namespace
}  // namespace spillway::test::deepspeed_checkpoint_test
