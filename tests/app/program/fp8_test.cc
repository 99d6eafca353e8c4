// Tests --precision fp8 in whole trainings: where the bytes are and how the ranks share the work changes no bit, a resumed run goes on with
// the same bits, losses stay near those of bf16, and what cannot be done in fp8 is refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/app/program/support_ranks.h"

namespace spillway::app::fp8_test {
namespace {

using Args = std::vector<std::string>;

// Returns a text of words in random order, of which a model learns the words and how often they occur.
std::string random_words(size_t bytes) {
  const char* words[] = {"and ", "the ", "river ", "runs ", "over ", "stones, ", "under ", "light.\n", "of ", "a ", "long ", "day "};
  u32 state = 12345;
  std::string text;
  while (text.size() < bytes) text += words[((state = state * 1664525u + 1013904223u) >> 20) % std::size(words)];
  return text;
}

struct Fp8Training : testing::Test {
  TemporaryFolder folder;
  const std::string text = folder.write("text.txt", random_words(200'000));
  std::string at(const std::string& name) const { return (folder.path() / name).string(); }
  // Returns the flags of a training in fp8. Flags in `more` replace these.
  Args train(const std::string& model, const std::string& out, int steps, const Args& more) const {
    Args all = more;
    const Args usual = {
        "--model",         model,      "--data",         text,    "--sequence-length",   "32", "--learning-rate", "1e-3",
        "--lr-schedule",   "constant", "--warmup-steps", "1",     "--threads",           "1",  "--nvme",          at("scratch"),
        "--device-memory", "64MiB",    "--host-memory",  "64MiB", "--global-batch-size", "4",  "--steps",         std::to_string(steps),
        "--precision",     "fp8",      "--out",          at(out)};
    for (size_t i = 0; i < usual.size(); i += 2) {
      if (std::ranges::find(more, usual[i]) == more.end()) all.insert(all.end(), {usual[i], usual[i + 1]});
    }
    return all;
  }
  void expect_trained(int ranks, const Args& args) const {
    for (const Outcome& rank : train_on(ranks, args)) EXPECT_EQ(rank.status, 0) << rank.err;
  }
  std::string refusal(const Args& args) const {
    Args all = {"train"};
    all.insert(all.end(), args.begin(), args.end());
    const Outcome outcome = run_app(all);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    return outcome.err;
  }
  double last_loss(const std::string& out, size_t steps) const {
    std::ifstream file(folder.path() / out / "metrics.jsonl");
    std::vector<double> losses;
    for (std::string line; std::getline(file, line);) losses.push_back(nlohmann::json::parse(line)["loss"]);
    EXPECT_GE(losses.size(), steps);
    double sum = 0;
    for (size_t i = losses.size() - steps; i < losses.size(); ++i) sum += losses[i];
    return sum / static_cast<double>(steps);
  }
};

// Trains a model in several ways on one and on two ranks, and in bf16.
void expect_same_bits(const Fp8Training& in, const std::string& model) {
  const Args host = {"--place-parameters", "host", "--place-gradients", "host", "--place-optimizer", "host"};
  const Args nvme = {"--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme", "--recompute", "block"};
  const Args zero = {"--zero-stage", "3", "--place-optimizer", "nvme"}, stages = {"--pipeline-stages", "2"};
  int runs = 0;
  const auto numbers = [&](int ranks, const Args& more) {
    const std::string out = "run" + std::to_string(++runs);
    in.expect_trained(ranks, in.train(model, out, 2, more));
    return numbers_in(in.at(out));
  };
  const std::vector<std::string> one = numbers(1, {}), two = numbers(2, {});
  EXPECT_EQ(numbers(1, host), one);
  EXPECT_EQ(numbers(1, nvme), one);
  EXPECT_EQ(numbers(2, zero), two);
  EXPECT_EQ(numbers(2, stages), one);
  EXPECT_NE(numbers(1, {"--precision", "bf16"}), one);
}

using Fp8TrainingRelease = Fp8Training;
using SoakFp8Training = Fp8Training;

TEST_F(Fp8TrainingRelease, PlacesRecomputationAndRanksChangeNoBitOfLlama) { expect_same_bits(*this, "llama-tiny"); }
TEST_F(SoakFp8Training, PlacesRecomputationAndRanksChangeNoBitOfGpt2) { expect_same_bits(*this, "gpt2-tiny"); }

TEST_F(Fp8TrainingRelease, AResumedRunGoesOnWithTheSameBits) {
  expect_trained(1, train("llama-tiny", "whole", 3, {}));
  expect_trained(1, train("llama-tiny", "run", 1, {}));
  expect_trained(1, train("llama-tiny", "run", 3, {}));
  EXPECT_EQ(numbers_in(at("run")), numbers_in(at("whole")));
  EXPECT_TRUE(state_in(at("run"), 3) == state_in(at("whole"), 3));
  EXPECT_NE(refusal(train("llama-tiny", "run", 6, {"--precision", "bf16"})).find("precision: \"fp8\" -> \"bf16\""), std::string::npos);
}

TEST_F(Fp8Training, WhatItCannotDoIsRefused) {
  const auto expect_refused = [&](const Args& args, const std::string& got) {
    const std::string said = refusal(args);
    EXPECT_NE(said.find("[--precision] expected "), std::string::npos) << said;
    EXPECT_NE(said.find(got), std::string::npos) << said;
    EXPECT_NE(said.find("give --precision bf16"), std::string::npos) << said;
  };
  expect_refused(train("mixtral-8x7b", "experts", 1, {}), "got mixtral-8x7b, whose experts multiply in bf16");
  std::string images(3073 * 64, '\1');
  folder.write("images.bin", images);
  expect_refused({"--model", "cifar-net", "--data", at("images.bin"), "--precision", "fp8", "--steps", "1", "--out", at("images")},
                 "got cifar-net, which reads images");
  expect_trained(1, train("gpt2-tiny", "run", 1, {}));
  expect_refused({"--model", at("run") + "/checkpoints/step-00000001", "--data", text, "--lora", "2", "--base-weights", "nf4",
                  "--precision", "fp8", "--sequence-length", "32", "--steps", "1", "--out", at("qlora")},
                 "got --base-weights in 8 or 4 bits");
  const Outcome generated =
      run_app({"generate", "--model", at("run"), "--prompt", "the ", "--precision", "fp8", "--device-memory", "64MiB"});
  EXPECT_EQ(generated.status, 2);
  EXPECT_NE(generated.err.find("[--precision] expected another precision to generate text, got fp8"), std::string::npos) << generated.err;
}

TEST_F(Fp8Training, AdaptersTrainOnAnFp8Base) {
  expect_trained(1, train("llama-tiny", "base", 1, {"--precision", "bf16"}));
  expect_trained(1, train(at("base") + "/checkpoints/step-00000001", "adapters", 2, {"--lora", "4"}));
  EXPECT_TRUE(std::isfinite(last_loss("adapters", 1)));
}

TEST_F(Fp8Training, EvaluateComputesTheLossOfValidation) {
  expect_trained(1, train("llama-tiny", "run", 1, {"--validation-data", text, "--validation-steps", "2"}));
  const auto loss = [&](const std::string& precision) {
    const Outcome f = run_app({"evaluate", "--model", at("run"), "--data", folder.write("short.txt", random_words(320)), "--precision",
                               precision, "--sequence-length", "32", "--device-memory", "64MiB", "--json"});
    EXPECT_EQ(f.status, 0) << f.err;
    return nlohmann::json::parse(f.out)["loss"].get<double>();
  };
  const double in_fp8 = loss("fp8"), in_bf16 = loss("bf16");
  EXPECT_NE(in_fp8, in_bf16);
  EXPECT_NEAR(in_fp8, in_bf16, 0.02 * in_bf16);
}

// Compares the mean loss of the last 50 of 500 steps. The learning rate falls to a tenth, so that these losses have settled: with a
// constant rate, those of bf16 differ by 5 % between seeds.
TEST_F(SoakFp8Training, LossStaysWithinTwoPercentOfBf16) {
  for (const std::string model : {"gpt2-tiny", "llama-tiny"}) {
    const auto loss = [&](const std::string& precision) {
      const std::string out = model + precision;
      expect_trained(1, train(model, out, 500,
                              {"--precision", precision, "--lr-schedule", "cosine", "--warmup-steps", "10", "--sequence-length", "64"}));
      return last_loss(out, 50);
    };
    const double in_fp8 = loss("fp8"), in_bf16 = loss("bf16");
    std::cout << model << ": loss " << in_bf16 << " in bf16, " << in_fp8 << " in fp8\n";
    EXPECT_NEAR(in_fp8, in_bf16, 0.02 * in_bf16) << model;
  }
}

}  // namespace
}  // namespace spillway::app::fp8_test
