// Tests --allow-change freeze in the middle of a run. Unfrozen parameters start like parameters that are added to a PyTorch optimizer: with
// zero moments and a separate step count. Newly frozen parameters lose their optimizer state. The results are bitwise the same in every
// tier, on any ranks, and after a restart.
#include <gtest/gtest.h>

#include <cmath>

#include "data/safetensors/safetensors.h"
#include "tests/app/program/support_ranks.h"

namespace spillway::app::thaw_test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;

Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

const std::string kThawed = "transformer.h.0.mlp.c_fc.weight", kTrained = "transformer.h.1.mlp.c_fc.weight";
const Args kFrozen = {"--freeze", "transformer.h.0.*"}, kThaw = {"--allow-change", "freeze"};
constexpr double kRate = 1e-2, kDecay = 0.1, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8;

struct Thaw : testing::Test {
  const TemporaryFolder folder;
  std::string text;
  Thaw() {
    std::string words;
    u32 state = 1;
    for (int i = 0; i < 20000; ++i) words += static_cast<char>(' ' + (state = state * 1664525u + 1013904223u) % 90);
    text = folder.write("text.txt", words);
  }
  std::string at(const std::string& name) const { return (folder.path() / name).string(); }
  Args train(const std::string& out, int steps) const {
    return {"--model",
            "gpt2-tiny",
            "--data",
            text,
            "--sequence-length",
            "16",
            "--learning-rate",
            "1e-2",
            "--lr-schedule",
            "constant",
            "--nvme",
            at(out + "-scratch"),
            "--warmup-steps",
            "0",
            "--threads",
            "1",
            "--device-memory",
            "64MiB",
            "--keep",
            "9",
            "--host-memory",
            "64MiB",
            "--steps",
            std::to_string(steps),
            "--checkpoint-every",
            "1",
            "--gradient-accumulation-steps",
            "2",
            "--out",
            at(out)};
  }
  static void expect_all_well(const std::vector<Outcome>& ranks) {
    for (const Outcome& rank : ranks) EXPECT_EQ(rank.status, 0) << rank.err;
  }
  std::vector<double> values(const std::string& run, int step, const std::string& file, const std::string& name) const {
    const data::SafetensorsReader reader(folder.path() / run / "checkpoints" / ("step-0000000" + std::to_string(step)) / file);
    const data::TensorInfo* tensor = reader.find(name);
    std::vector<double> all(tensor ? static_cast<size_t>(tensor->shape.elems()) : 0);
    if (tensor) reader.read_wide(*tensor, 0, all);
    return all;
  }
  std::vector<double> weight(const std::string& run, int step, const std::string& name) const {
    return values(run, step, "model.safetensors", name);
  }
  std::vector<double> state(const std::string& run, int step, const std::string& name) const {
    return values(run, step, "optimizer.safetensors", name);
  }

  // Checks that the weights after `step` are those of update `t` of torch.optim.AdamW with the moments that the checkpoint holds.
  void expect_adamw(const std::string& run, int step, const std::string& name, int t) const {
    const auto before = weight(run, step - 1, name), after = weight(run, step, name), m = state(run, step, name + ".exp_avg"),
               v = state(run, step, name + ".exp_avg_sq");
    ASSERT_EQ(m.size(), after.size());
    ASSERT_EQ(v.size(), after.size());
    for (size_t i = 0; i < after.size(); ++i) {
      const double moved = kRate * (m[i] / (1 - std::pow(kBeta1, t))) / (std::sqrt(v[i] / (1 - std::pow(kBeta2, t))) + kEps);
      ASSERT_NEAR(after[i], before[i] * (1 - kRate * kDecay) - moved, 1e-6) << name << " at step " << step << ", element " << i;
    }
  }
};

TEST_F(Thaw, ThawedParametersCountTheirOwnSteps) {
  expect_all_well(train_on(1, train("run", 3) + kFrozen));
  EXPECT_TRUE(state("run", 3, kThawed + ".exp_avg").empty());
  EXPECT_EQ(weight("run", 3, kThawed), weight("run", 1, kThawed));
  const std::vector<Outcome> refused = train_on(1, train("run", 4));
  EXPECT_EQ(refused.front().status, 2) << refused.front().err;
  const std::vector<Outcome> thawed = train_on(1, train("run", 4) + kThaw);
  expect_all_well(thawed);
  EXPECT_NE(thawed.front().err.find("trained from here on"), std::string::npos) << thawed.front().err;
  expect_all_well(train_on(1, train("run", 6)));  // a restarted run knows the step from which the updates of unfrozen parameters count
  for (int step = 4; step <= 6; ++step) {
    expect_adamw("run", step, kThawed, step - 3);
    expect_adamw("run", step, kTrained, step);
  }
}

TEST_F(Thaw, HasTheSameBitsAnywhere) {
  const auto run = [&](const std::string& out, int first_ranks, int ranks, const Args& placed) {
    expect_all_well(train_on(first_ranks, train(out, 2) + kFrozen + placed));
    expect_all_well(train_on(ranks, train(out, 4) + kThaw + placed));
    expect_all_well(train_on(first_ranks, train(out, 5) + placed));
    return state_in(at(out), 5);
  };
  const Args on_nvme = {"--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme"};
  const std::string want = run("memory", 1, 1, {});
  EXPECT_TRUE(run("nvme", 1, 1, on_nvme) == want);
  for (const char* stage : {"0", "1", "3"})
    EXPECT_TRUE(run(std::string("sharded-") + stage, 1, 2, {"--zero-stage", stage, "--place-optimizer", "host"}) == want) << stage;
  EXPECT_TRUE(run("sharded-nvme", 1, 2, on_nvme + Args{"--zero-stage", "2"}) == want);
}

TEST_F(Thaw, FreezingMoreDropsTheState) {
  expect_all_well(train_on(1, train("run", 2)));
  const auto frozen = train_on(1, train("run", 3) + kFrozen + kThaw);
  expect_all_well(frozen);
  EXPECT_NE(frozen.front().err.find("frozen from here on"), std::string::npos) << frozen.front().err;
  EXPECT_EQ(weight("run", 3, kThawed), weight("run", 2, kThawed));
  EXPECT_TRUE(state("run", 3, kThawed + ".exp_avg").empty());
  expect_adamw("run", 3, kTrained, 3);
  // Parameters that are frozen and unfrozen once more start again with zero moments and step count.
  expect_all_well(train_on(1, train("run", 4) + kThaw));
  expect_adamw("run", 4, kThawed, 1);
}

// With bf16 weights, an unfrozen parameter's fp32 master weight starts as its weight. Learning rates of optimizer groups are kept.
TEST_F(Thaw, MastersAndGroupsAreKept) {
  const Args more = {"--precision", "bf16", "--ema", "0.5", "--optimizer-group", "h\\.0\\..*c_fc\\.weight:lr=1e-3,weight_decay=0"};
  expect_all_well(train_on(1, train("run", 2) + Args{"--precision", "bf16", "--ema", "0.5", "--freeze", "transformer.h.0.attn.*"} +
                                  Args{more.end() - 2, more.end()}));
  expect_all_well(train_on(1, train("run", 3) + more + kThaw));
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  const auto before = weight("run", 2, name), master = state("run", 3, name + ".master"), m = state("run", 3, name + ".exp_avg"),
             v = state("run", 3, name + ".exp_avg_sq"), average = state("run", 3, name + ".ema");
  ASSERT_EQ(master.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    const double moved = kRate * (m[i] / (1 - kBeta1)) / (std::sqrt(v[i] / (1 - kBeta2)) + kEps);
    ASSERT_NEAR(master[i], before[i] * (1 - kRate * kDecay) - moved, 1e-6) << i;
    ASSERT_NEAR(average[i], 0.5 * (before[i] + master[i]), 1e-6) << i;
  }
}

}  // namespace
}  // namespace spillway::app::thaw_test
