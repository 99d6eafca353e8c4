// Tests train --attention cudnn as a user runs it: its numbers are near those of Spillway's own attention, a restart uses the engines that
// the run recorded, and impossible requests are refused with one line. In a build with SPILLWAY_CUDA=EMULATED cuDNN is emulated too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "device/device_query.h"
#include "kernels/sequence/attention_library.h"
#include "tests/e2e/support_program.h"

namespace spillway::test::attention_cuda_test {
namespace {

struct AttentionOnGpu : testing::Test {
  const Workplace at;
  bool emulated = false;
  void SetUp() override {
    ::setenv("SPILLWAY_EMULATED_GPUS", "1", 1);
    const GpuReport report = query_gpus();
    if (report.gpus.empty()) GTEST_SKIP() << report.problem;
    if (const std::string why = kernels::missing_attention_library(report.gpus[0].compute_capability); !why.empty()) GTEST_SKIP() << why;
    emulated = report.gpus[0].name == "emulated";
    at.write_text("text.txt", 4000);
    std::filesystem::create_directory(at / "gpt2"), std::filesystem::create_directory(at / "llama");
    at.write("gpt2/config.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2,
                                     "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})");
    at.write("llama/config.json", R"({"model_type": "llama", "vocab_size": 256, "max_position_embeddings": 32, "hidden_size": 32,
                                      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})");
  }
  void TearDown() override {
    ::unsetenv("SPILLWAY_EMULATED_GPUS");
    ::unsetenv("SPILLWAY_EMULATED_CUDNN");
  }
  static void be_like(const char* words) { ::setenv("SPILLWAY_EMULATED_CUDNN", words, 1); }

  static Args training(const std::string& model, const std::string& out, int steps, const Args& more = {}) {
    Args args = {"train",
                 "--model",
                 model,
                 "--data",
                 "text.txt",
                 "--device",
                 "cuda",
                 "--precision",
                 "bf16",
                 "--device-memory",
                 "64MiB",
                 "--host-memory",
                 "64MiB",
                 "--steps",
                 std::to_string(steps),
                 "--out",
                 out,
                 "--warmup-steps",
                 "1",
                 "--lr-schedule",
                 "constant"};
    args.insert(args.end(), {"--sequence-length", "16"});
    if (model != "gpt2-tiny") args.push_back("--from-scratch");
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const std::string& line : at.metrics(run)) all.push_back(nlohmann::json::parse(line)["loss"]);
    return all;
  }
  void expect_refused(const Args& args, int status, const std::string& says) const {
    const Finished f = at.spillway(args);
    EXPECT_EQ(f.status, status) << f.err;
    EXPECT_TRUE(mentions(f.err, says)) << f.err;
  }
};

const Args kCudnn = {"--attention", "cudnn"};

TEST_F(AttentionOnGpu, TrainsNearOurOwnWithHeadsOfTheirOwnAndShared) {
  for (const std::string model : {"gpt2", "llama"}) {
    const Finished cudnn = at.spillway(training("./" + model, model + "-cudnn", 2, kCudnn)),
                   own = at.spillway(training("./" + model, model + "-own", 2));
    ASSERT_TRUE(cudnn.status == 0 && own.status == 0) << cudnn.err << own.err;
    EXPECT_TRUE(mentions(cudnn.err, "attention: cuDNN ") && mentions(cudnn.err, ", backward engine ")) << cudnn.err;
    EXPECT_TRUE(mentions(at.read(model + "-cudnn/config.json"), "\"attention\": \"cudnn\""));
    EXPECT_TRUE(mentions(at.read(model + "-own/config.json"), "\"attention\": \"own\""));
    const auto got = losses(model + "-cudnn"), want = losses(model + "-own");
    ASSERT_EQ(got.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(got[i], want[i], 2e-3 * want[i]) << model;
    EXPECT_NE(at.metrics(model + "-own")[1], at.metrics(model + "-cudnn")[1]) << "other kernels";
  }
  expect_refused(training("./gpt2", "gpt2-cudnn", 3), 2, "attention: \"cudnn\" -> \"own\"");
}

TEST_F(AttentionOnGpu, GoesOnWithTheEnginesOfItsRecordOnAnyTierAndSaysWhereItCannot) {
  if (!emulated) GTEST_SKIP() << "needs emulated GPUs";
  ASSERT_EQ(at.spillway(training("./gpt2", "whole", 2, kCudnn)).status, 0);
  ASSERT_EQ(at.spillway(training("./gpt2", "run", 1, kCudnn)).status, 0);
  EXPECT_TRUE(mentions(at.read("run/checkpoints/step-00000001/manifest.json"),
                       "cuDNN 9.19.0 on compute capability 9.0 with 4 SMs, forward engine 2 k24=7, backward engine 6 k24=26"));
  be_like("reversed");
  Args spilled = kCudnn;
  spilled.insert(spilled.end(), {"--place-parameters", "host", "--place-optimizer", "host", "--recompute", "block"});
  const Finished went_on = at.spillway(training("./gpt2", "run", 2, spilled));
  ASSERT_EQ(went_on.status, 0) << went_on.err;
  EXPECT_FALSE(mentions(went_on.err, "last bits")) << went_on.err;
  EXPECT_EQ(numbers_of(at.metrics("run")), numbers_of(at.metrics("whole")));
  be_like("newer");
  const Finished newer = at.spillway(training("./gpt2", "run", 3, kCudnn));
  EXPECT_EQ(newer.status, 0) << newer.err;
  EXPECT_TRUE(mentions(newer.err, "cuDNN engines (emulated, cuDNN 9.19.0 on") && mentions(newer.err, "; now emulated, cuDNN 9.20.0 on"))
      << newer.err;
}

TEST_F(AttentionOnGpu, RanksTakeTheEnginesOfTheFirst) {
  Args two = kCudnn;
  two.insert(two.end(), {"--ranks", "2", "--zero-stage", "2", "--gradient-accumulation-steps", "1"});
  const Finished f = at.spillway(training("./gpt2", "two", 1, two));
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "attention: cuDNN ")) << f.err;
}

TEST_F(AttentionOnGpu, WhatItCannotBeIsOneLine) {
  // Replaces the values of flags that are already in `args`, and appends flags that are not.
  const auto with = [](Args args, const Args& more) {
    for (size_t i = 0; i < more.size(); i += 2) {
      const auto known = std::ranges::find(args, more[i]);
      if (known == args.end()) {
        args.insert(args.end(), {more[i], more[i + 1]});
      } else {
        *std::next(known) = more[i + 1];
      }
    }
    return args;
  };
  const Args gpt2 = training("gpt2-tiny", "run", 1, kCudnn);
  expect_refused(with(gpt2, {"--device", "cpu"}), 2, "[--attention] expected --device cuda for cudnn, got cpu; leave out");
  expect_refused(with(gpt2, {"--precision", "fp32"}), 2, "[--attention] expected --precision bf16 or fp16 for cudnn, got another");
  expect_refused(with(gpt2, {"--dropout", "0.1"}), 2,
                 "[--attention] expected no dropout of attention probabilities for cudnn, got 0.1: give --dropout 0");
  expect_refused(with(gpt2, {"--sequence-length", "1"}), 2, "[--attention] expected sequences of at least two tokens, got 1 for cudnn");
  expect_refused(with(gpt2, {"--device-memory", "1MiB", "--sequence-length", "256"}), 3,
                 "The workspace of --attention cudnn takes 520.0 KiB of the device's memory");
  if (!emulated) return;
  be_like("old");
  expect_refused(gpt2, 2, "[attention] expected cuDNN 9.15.1 or newer, got 9.15.0: install cuDNN 9.15.1 or newer");
  be_like("large");
  expect_refused(gpt2, 3, "of workspace, ");
}

// Shows that the plan counts cuDNN's workspace even without a GPU and library: 2 bytes for each of 32 heads' scores of 16384 x 16384, 16.0
// GiB. A plan with Spillway's own attention needs most memory in the head instead, where the logits and the sums of their gradients take
// about 1 GiB.
TEST(AttentionPlan, CountsTheWorkspace) {
  const Workplace at;
  const auto gib = [&](const std::string& attention, const std::string& before) {
    const Finished f = at.spillway({"plan", "--model", "llama3-1b", "--sequence-length", "16384", "--cluster", "1x1xH100-80GiB,256GiB",
                                    "--recompute", "none", "--attention", attention});
    EXPECT_EQ(f.status, 0) << f.err;
    const size_t found = f.out.find(before);
    EXPECT_NE(found, std::string::npos) << f.out;
    return found == std::string::npos ? 0 : std::stod(f.out.substr(found + before.size()));
  };
  const double more = gib("cudnn", "\n  activations ") - gib("own", "\n  activations ");
  const double logits = gib("own", "\n  logits: kept on the device from forward to backward, ");
  EXPECT_GT(more + logits, 14.5);
  EXPECT_LT(more + logits, 16.5);
}

}  // namespace
}  // namespace spillway::test::attention_cuda_test
