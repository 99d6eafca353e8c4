// Tests LoRA with the built program: results are bitwise the same in whichever tier the base weights lie, checkpoints hold only the
// adapters, restarts work, a changed base is noticed, and impossible requests are refused.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/e2e/support_program.h"

namespace spillway::test::lora_test {
namespace {

namespace fs = std::filesystem;

struct Adapters : testing::Test {
  void SetUp() override {
    at.write_text("text.txt", 20'000);
    at.write_text("held_out.txt", 1000);
    expect_ends(at.spillway(
        {"train", "--model", "gpt2-tiny", "--data", "text.txt", "--steps", "3", "--sequence-length", "32", "--out", "made", "--quiet"}));
    expect_ends(at.spillway({"export", "made", "--out", "base"}));
  }
  static void expect_ends(const Finished& run) { ASSERT_EQ(run.status, 0) << run.err; }
  Args train(const std::string& out, const Args& more = {}, const std::string& steps = "6") const {
    Args all{"train", "--model", "base", "--data",         "text.txt", "--tokenizer",     "bytes", "--sequence-length", "32",    "--steps",
             steps,   "--lora",  "4",    "--lora-dropout", "0.1",      "--learning-rate", "1e-2",  "--quiet",           "--out", out};
    const bool own_batch = std::ranges::find(more, "--gradient-accumulation-steps") != more.end();
    if (!own_batch) all.insert(all.end(), {"--gradient-accumulation-steps", "2"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string adapter(const std::string& run) const { return at.read(run + "/checkpoints/step-00000006/adapter_model.safetensors"); }
  Finished evaluated(const Args& more) const {
    Args all{"evaluate", "--data", "held_out.txt", "--tokenizer", "bytes", "--sequence-length", "32", "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return at.spillway(all);
  }
  Workplace at;
};
using AdaptersMore = Adapters;

TEST_F(AdaptersMore, HaveTheSameBitsWhereverTheBaseRests) {
  expect_ends(at.spillway(train("device")));
  const std::string want = adapter("device");
  ASSERT_FALSE(want.empty());
  const std::vector<Args> ways = {
      {"--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme", "--nvme", "scratch"},
      {"--place-parameters", "host", "--place-optimizer", "host", "--place-activations", "host"},
      {"--ranks", "2", "--gradient-accumulation-steps", "1", "--zero-stage", "3"},
      {"--ranks", "2", "--pipeline-stages", "2"}};
  for (const Args& way : ways) {
    fs::remove_all(at / "other");
    expect_ends(at.spillway(train("other", way)));
    EXPECT_TRUE(adapter("other") == want) << way[0] << " " << way[1];
  }
  for (const char* other : {"model.safetensors", "config.json"})
    EXPECT_FALSE(fs::exists(at / "device/checkpoints/step-00000006" / other)) << "the adapters alone";
  EXPECT_LT(fs::file_size(at / "device/checkpoints/step-00000006/adapter_model.safetensors"),
            fs::file_size(at / "base/model.safetensors") / 10);
}

TEST_F(Adapters, GoOnAfterAKill) {
  expect_ends(at.spillway(train("straight")));
  const Args nvme{"--checkpoint-every",
                  "2",
                  "--place-parameters",
                  "nvme",
                  "--place-gradients",
                  "nvme",
                  "--place-optimizer",
                  "nvme",
                  "--nvme",
                  "scratch"};
  const auto saved = [&] { return fs::exists(at / "killed/checkpoints/step-00000004"); };
  EXPECT_EQ(at.spillway_until(train("killed", nvme), saved, SIGKILL).status, 128 + SIGKILL);
  expect_ends(at.spillway(train("killed", nvme)));
  EXPECT_TRUE(adapter("killed") == adapter("straight"));
}

TEST_F(Adapters, AreWhatIsEvaluatedGeneratedAndExported) {
  expect_ends(at.spillway(train("run")));
  const std::string with = evaluated({"--model", "run"}).out, without = evaluated({"--model", "base"}).out;
  EXPECT_NE(with, without);
  expect_ends(at.spillway({"export", "run", "--out", "peft"}));
  expect_ends(at.spillway({"export", "run", "--merge", "--out", "merged"}));
  EXPECT_EQ(evaluated({"--model", "peft"}).out, with);
  EXPECT_EQ(evaluated({"--model", "base", "--adapter", "peft"}).out, with);
  EXPECT_EQ(evaluated({"--model", "merged"}).out.substr(0, 9), with.substr(0, 9)) << "but for rounding";
  EXPECT_FALSE(fs::exists(at / "merged/adapter_config.json"));
  EXPECT_NE(at.read("peft/adapter_config.json").find("\"fan_in_fan_out\": true"), std::string::npos);
  expect_ends(at.spillway({"generate", "--model", "run", "--tokenizer", "bytes", "--prompt", "a", "--max-tokens", "4", "--quiet"}));
  // Starts training from a PEFT folder.
  Args on = train("on", {"--adapter", "peft"});
  const auto lora = std::ranges::find(on, "--lora");
  on.erase(lora, lora + 4);
  expect_ends(at.spillway(on));
  EXPECT_FALSE(adapter("on") == adapter("run"));
}

TEST_F(Adapters, OfSeveralEachAnswers) {
  expect_ends(at.spillway(train("one")));
  Args other = train("two", {"--lora-targets", "c_attn", "--weight-decay", "0.01"});
  other[static_cast<size_t>(std::ranges::find(other, "--lora") - other.begin()) + 1] = "6";
  expect_ends(at.spillway(other));
  expect_ends(at.spillway({"export", "one", "--out", "first"}));
  expect_ends(at.spillway({"export", "two", "--out", "second"}));
  at.write("prompts.txt", "a\nthe\n");
  const auto lines = [&](const Args& adapters) {
    Args all{"generate",    "--model",      "base", "--tokenizer",   "bytes", "--prompts",
             "prompts.txt", "--max-tokens", "6",    "--temperature", "0",     "--quiet"};
    for (const std::string& adapter : adapters) all.insert(all.end(), {"--adapter", adapter});
    const Finished run = at.spillway(all);
    EXPECT_EQ(run.status, 0) << run.err;
    std::vector<nlohmann::json> answers;
    std::istringstream text(run.out);
    for (std::string line; std::getline(text, line);) answers.push_back(nlohmann::json::parse(line));
    return answers;
  };
  const auto both = lines({"first", "second"}), first = lines({"first"}), second = lines({"second"});
  ASSERT_EQ(both.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(both[i]["adapter"], i < 2 ? "first" : "second");
    EXPECT_EQ(both[i]["tokens"], (i < 2 ? first[i] : second[i - 2])["tokens"]);
    EXPECT_FALSE(first[i % 2].contains("adapter"));
  }
  EXPECT_NE(first, second) << "planted: they differ";
  const Finished none =
      at.spillway({"generate", "--model", "base", "--tokenizer", "bytes", "--prompt", "a", "--adapter", "first", "--adapter", "gone"});
  EXPECT_EQ(none.status, 4);
  EXPECT_EQ(none.out, "") << "nothing is written before all are known";
}

TEST_F(AdaptersMore, BesideABaseInFewerBytesHaveTheSameBitsWhereverItRests) {
  for (const char* kept : {"nf4", "8bit"}) {
    const Args base{"--base-weights", kept};
    const std::string run = std::string("of_") + kept;
    expect_ends(at.spillway(train(run, base)));
    const std::string want = adapter(run);
    for (Args way :
         std::vector<Args>{{"--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme", "--nvme", "scratch"},
                           {"--ranks", "2", "--gradient-accumulation-steps", "1", "--zero-stage", "3"},
                           {"--ranks", "2", "--pipeline-stages", "2"}}) {
      fs::remove_all(at / "other");
      way.insert(way.end(), base.begin(), base.end());
      expect_ends(at.spillway(train("other", way)));
      EXPECT_TRUE(adapter("other") == want) << kept << " " << way[0] << " " << way[1];
    }
  }
  expect_ends(at.spillway(train("full")));
  EXPECT_FALSE(adapter("full") == adapter("of_nf4") || adapter("of_8bit") == adapter("of_nf4"));
}

TEST_F(Adapters, BesideABaseInFewerBytesGoOnAndAreEvaluatedSo) {
  expect_ends(at.spillway(train("run", {"--base-weights", "nf4"})));
  Args first = train("again", {"--base-weights", "nf4", "--keep-schedule"}, "6");
  const auto saved = [&] { return fs::exists(at / "again/checkpoints/step-00000002"); };
  first.insert(first.end(), {"--checkpoint-every", "2"});
  at.spillway_until(first, saved, SIGKILL);
  const Finished other = at.spillway(train("again", {"--base-weights", "8bit", "--keep-schedule"}));
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("base_weights"), std::string::npos) << other.err;
  expect_ends(at.spillway(first));
  EXPECT_TRUE(adapter("again") == adapter("run"));
  // An adapter is evaluated on base weights of the kind (quantized or not) that it was trained with, unless another kind is requested.
  const std::string evaluated_so = evaluated({"--model", "run"}).out;
  expect_ends(at.spillway({"export", "run", "--out", "peft"}));
  EXPECT_EQ(evaluated({"--model", "base", "--adapter", "peft", "--base-weights", "nf4"}).out, evaluated_so);
  EXPECT_NE(evaluated({"--model", "base", "--adapter", "peft"}).out, evaluated_so);
  EXPECT_EQ(evaluated({"--model", "run", "--base-weights", "fp32"}).out, evaluated({"--model", "base", "--adapter", "peft"}).out);
  EXPECT_EQ(evaluated({"--model", "run", "--place-parameters", "nvme", "--nvme", "scratch"}).out, evaluated_so);
}

TEST_F(Adapters, ABaseOfBf16IsKeptSoForTheSameBits) {
  expect_ends(at.spillway({"export", "made", "--dtype", "bf16", "--out", "halves"}));
  const auto kept = [&](const std::string& run) {
    const auto manifest = nlohmann::json::parse(at.read(run + "/checkpoints/step-00000006/manifest.json"));
    return manifest.value("base_weights", "plain");
  };
  expect_ends(at.spillway(train("of_fp32")));
  EXPECT_EQ(kept("of_fp32"), "plain") << "bf16 does not hold these";
  const auto beside_halves = [&](Args all) {
    all[2] = "halves";
    expect_ends(at.spillway(all));
  };
  beside_halves(train("asked", {"--base-weights", "fp32"}));
  beside_halves(train("default"));
  EXPECT_EQ(kept("asked"), "plain");
  EXPECT_EQ(kept("default"), "bf16");
  EXPECT_TRUE(adapter("default") == adapter("asked"));
  EXPECT_FALSE(adapter("default") == adapter("of_fp32")) << "planted: they differ";
  const std::string evaluated_so = evaluated({"--model", "default"}).out;
  EXPECT_EQ(evaluated_so, evaluated({"--model", "asked"}).out);
  EXPECT_EQ(evaluated_so, evaluated({"--model", "default", "--base-weights", "fp32"}).out);
}

TEST_F(Adapters, OfAnotherBaseAreRefused) {
  expect_ends(at.spillway(train("run")));
  const std::string weights = at.read("base/model.safetensors");
  std::string other = weights;
  other[other.size() - 3] ^= 1;
  at.write("base/model.safetensors", other);
  const Finished run = evaluated({"--model", "run"});
  EXPECT_EQ(run.status, 4);
  EXPECT_NE(run.err.find("expected the base model it was trained with"), std::string::npos) << run.err;
  const Finished resumed = at.spillway(train("other", {"--resume", (at / "run/checkpoints/step-00000006").string()}, "8"));
  EXPECT_EQ(resumed.status, 2);
  EXPECT_NE(resumed.err.find("expected in --model the same contents that the run was trained with"), std::string::npos) << resumed.err;
  at.write("base/model.safetensors", weights);
  expect_ends(evaluated({"--model", "run"}));
  fs::rename(at / "base", at / "gone");
  const Finished gone = evaluated({"--model", "run"});
  EXPECT_EQ(gone.status, 4);
  EXPECT_NE(gone.err.find("expected the base model that it was trained with"), std::string::npos) << gone.err;
}

TEST_F(Adapters, WhatCannotBeIsOneLine) {
  struct Case {
    Args flags;
    std::string says;
  };
  for (const auto& [flags, says] : std::vector<Case>{
           {{"--lora-targets", "q_proj"}, "such as c_attn, c_proj, c_fc, got `q_proj`"},
           {{"--from-scratch"}, "expected a --model folder with trained weights"},
           {{"--adapter", "base"}, "--lora, got both"},
           {{"--lora-targets", ","}, "got nothing"},
           {{"--base-weights", "fp32", "--precision", "bf16"}, "can use directly, got fp32"},
           {{"--base-weights", "4bit"}, "nf4"},
       }) {
    const Finished run = at.spillway(train("never", flags));
    EXPECT_EQ(run.status, 2) << says;
    EXPECT_NE(run.err.find(says), std::string::npos) << run.err;
  }
  const Args plain{"train", "--model", "base", "--data", "text.txt", "--tokenizer", "bytes", "--steps", "1", "--out", "never"};
  const auto with = [&](const Args& more) {
    Args all = plain;
    all.insert(all.end(), more.begin(), more.end());
    return at.spillway(all);
  };
  EXPECT_NE(with({"--base-weights", "nf4"}).err.find("expected --lora or --adapter with it"), std::string::npos);
  EXPECT_NE(with({"--lora-alpha", "8"}).err.find("expected --lora RANK with"), std::string::npos);
  const Finished none = with({"--adapter", "base"});
  EXPECT_EQ(none.status, 4);
  EXPECT_NE(none.err.find("expected a PEFT folder with an adapter_config.json"), std::string::npos) << none.err;
  EXPECT_EQ(at.spillway({"export", "base", "--merge", "--out", "never"}).status, 2);
  EXPECT_FALSE(fs::exists(at / "never"));
}

}  // namespace
}  // namespace spillway::test::lora_test
