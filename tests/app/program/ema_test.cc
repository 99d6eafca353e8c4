// Tests train --ema: the moving average of the weights is offloaded, sharded and restored like all optimizer state. export --ema writes the
// average as a model.
#include <gtest/gtest.h>

#include <fstream>

#include "data/safetensors/safetensors.h"
#include "tests/app/program/support_ranks.h"

namespace spillway::app::ema_test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;

Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

struct Ema : testing::Test {
  const TemporaryFolder folder;
  std::string text;
  Ema() {
    std::string words;
    u32 state = 1;
    for (int i = 0; i < 20000; ++i) words += static_cast<char>(' ' + (state = state * 1664525u + 1013904223u) % 90);
    text = folder.write("text.txt", words);
  }
  std::string at(const std::string& name) const { return (folder.path() / name).string(); }
  fs::path checkpoint(const std::string& run, int step) const {
    return folder.path() / run / "checkpoints" / ("step-0000000" + std::to_string(step));
  }
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
            "--warmup-steps",
            "1",
            "--threads",
            "1",
            "--nvme",
            at("scratch"),
            "--device-memory",
            "64MiB",
            "--host-memory",
            "64MiB",
            "--steps",
            std::to_string(steps),
            "--out",
            at(out)};
  }
  static void expect_all_well(const std::vector<Outcome>& ranks) {
    for (const Outcome& rank : ranks) EXPECT_EQ(rank.status, 0) << rank.err;
  }
  static std::vector<double> values(const fs::path& file, const std::string& name) {
    const data::SafetensorsReader reader(file);
    const data::TensorInfo* tensor = reader.find(name);
    EXPECT_TRUE(tensor) << name;
    std::vector<double> all(tensor ? static_cast<size_t>(tensor->shape.elems()) : 0);
    if (tensor) reader.read_wide(*tensor, 0, all);
    return all;
  }
};

const std::string kName = "transformer.h.0.mlp.c_fc.weight";

TEST_F(Ema, GoesOnWithTheSameBitsAnywhere) {
  const Args ema = {"--ema", "0.9", "--gradient-accumulation-steps", "2"};
  expect_all_well(train_on(1, train("whole", 4) + ema));
  const std::string want = state_in(at("whole"), 4);
  expect_all_well(train_on(1, train("parts", 2) + ema));
  expect_all_well(train_on(
      2, train("parts", 4) + Args{"--ema", "0.9", "--zero-stage", "3", "--place-optimizer", "nvme", "--place-parameters", "host"}));
  EXPECT_TRUE(state_in(at("parts"), 4) == want);
  const auto average = values(checkpoint("whole", 4) / "optimizer.safetensors", kName + ".ema"),
             weight = values(checkpoint("whole", 4) / "model.safetensors", kName);
  EXPECT_NE(average, weight);
}

TEST_F(Ema, IsExportedAsAModel) {
  expect_all_well(train_on(1, train("run", 3) + Args{"--ema", "0.5", "--precision", "bf16"}));
  const auto average = values(checkpoint("run", 3) / "optimizer.safetensors", kName + ".ema");
  const Outcome exported = run_app({"export", at("run"), "--ema", "--out", at("averaged"), "--dtype", "fp32"});
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_EQ(values(folder.path() / "averaged" / "model.safetensors", kName), average);
  ASSERT_EQ(run_app({"export", at("run"), "--out", at("plain"), "--dtype", "fp32"}).status, 0);
  EXPECT_NE(values(folder.path() / "plain" / "model.safetensors", kName), average);
  const Outcome evaluated =
      run_app({"evaluate", "--model", at("averaged"), "--data", text, "--tokenizer", "bytes", "--sequence-length", "16", "--threads", "1"});
  EXPECT_EQ(evaluated.status, 0) << evaluated.err;
}

TEST_F(Ema, OfAdaptersIsThatOfTheAdapters) {
  expect_all_well(train_on(1, train("base", 1)));
  ASSERT_EQ(run_app({"export", at("base"), "--out", at("model")}).status, 0);
  Args args = train("lora", 3) + Args{"--ema", "0.5", "--lora", "2", "--tokenizer", "bytes"};
  args[1] = at("model");
  expect_all_well(train_on(1, args));
  const data::SafetensorsReader state(checkpoint("lora", 3) / "optimizer.safetensors");
  std::string adapter;
  for (const data::TensorInfo& t : state.tensors()) {
    if (t.name.ends_with(".ema") && t.name.find("c_fc.lora_B") != std::string::npos && adapter.empty()) adapter = t.name;
  }
  ASSERT_NE(adapter, "");
  for (const Args& merge : {Args{}, Args{"--merge"}}) {
    const std::string plain = at("plain" + std::to_string(merge.size())), averaged = at("averaged" + std::to_string(merge.size()));
    const Outcome exported = run_app(Args{"export", at("lora"), "--ema", "--out", averaged} + merge);
    ASSERT_EQ(exported.status, 0) << exported.err;
    ASSERT_EQ(run_app(Args{"export", at("lora"), "--out", plain} + merge).status, 0);
    const std::string file = merge.empty() ? "adapter_model.safetensors" : "model.safetensors";
    const data::SafetensorsReader reader(fs::path(averaged) / file);
    int differ = 0;
    for (const data::TensorInfo& t : reader.tensors()) {
      if (t.name.find("c_fc") == std::string::npos) continue;
      differ += values(fs::path(averaged) / file, t.name) != values(fs::path(plain) / file, t.name);
    }
    EXPECT_GT(differ, 0) << file;
  }
}

// The moving average (--ema) may begin in the middle of a run: it starts from the checkpoint's
// weights. That changes the run's numbers, so the user must allow it with --allow-change.
TEST_F(Ema, MayBeginAmidstARun) {
  expect_all_well(train_on(1, train("run", 1)));
  const auto weight = values(checkpoint("run", 1) / "model.safetensors", kName);
  EXPECT_EQ(train_on(1, train("run", 2) + Args{"--ema", "0.9"}).front().status, 2);
  expect_all_well(train_on(1, train("run", 2) + Args{"--ema", "0.9", "--allow-change", "ema"}));
  const auto next = values(checkpoint("run", 2) / "model.safetensors", kName),
             average = values(checkpoint("run", 2) / "optimizer.safetensors", kName + ".ema");
  for (size_t i = 0; i < weight.size(); ++i)
    ASSERT_NEAR(average[i], weight[i] + 0.1 * (next[i] - weight[i]), 1e-7 * (1 + std::abs(weight[i])));
}

TEST_F(Ema, IsRefusedWhereItCannotBe) {
  for (const char* decay : {"0", "1", "-0.5", "1.5", "nan"}) {
    const Outcome refused = run_app(Args{"train"} + train("none", 1) + Args{"--ema", decay});
    EXPECT_EQ(refused.status, 2) << decay;
    EXPECT_FALSE(fs::exists(folder.path() / "none")) << decay;
  }
  expect_all_well(train_on(1, train("run", 1)));
  const Outcome without = run_app({"export", at("run"), "--ema", "--out", at("averaged")});
  EXPECT_EQ(without.status, 2);
  EXPECT_NE(without.err.find("train --ema DECAY"), std::string::npos) << without.err;
  EXPECT_FALSE(fs::exists(folder.path() / "averaged"));
}

TEST_F(Ema, IsInThePlan) {
  const Outcome planned = run_app(Args{"plan"} + train("none", 1) + Args{"--ema", "0.999"});
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_NE(planned.out.find("optimizer state (m, v, average)"), std::string::npos) << planned.out;
}

}  // namespace
}  // namespace spillway::app::ema_test
