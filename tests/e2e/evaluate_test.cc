// Tests spillway evaluate against what training reported on the same data.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/types.h"
#include "tests/e2e/support_program.h"
#include "tests/support/fixtures.h"

namespace spillway::test::evaluate_test {
namespace {

// Shows that the loss of a run on its validation data equals the validation loss that the run reported, wherever its weights are placed.
TEST(Evaluate, GivesTheValidationLossOfTheRun) {
  const Workplace place;
  place.write_text("text.txt", 20000);
  place.write_text("held.txt", 3000);
  const Finished trained = place.spillway(small_run("run", 3, "64MiB", {"--validation-data", "held.txt"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto expected = nlohmann::json::parse(place.metrics("run").back())["validation_loss"].get<double>();
  const Args base = {"evaluate", "--model", "run", "--data", "held.txt", "--sequence-length", "16", "--json", "--device-memory", "64MiB"};
  for (const Args& more : {Args{}, Args{"--place-parameters", "nvme", "--nvme", "scratch"}, Args{"--place-parameters", "host"}}) {
    Args args = base;
    args.insert(args.end(), more.begin(), more.end());
    const Finished run = place.spillway(args);
    ASSERT_EQ(run.status, 0) << run.err;
    const auto result = nlohmann::json::parse(run.out);
    EXPECT_EQ(result["loss"].get<double>(), expected);
    EXPECT_EQ(result["perplexity"].get<double>(), std::exp(expected));
    EXPECT_EQ(result["tokens"].get<int>(), (static_cast<int>(place.read("held.txt").size()) - 1) / 16 * 16);
  }
}

// Shows that a NaN loss, which a NaN weight causes, is reported and is not a success.
TEST(Evaluate, ALossThatIsNotFiniteIsNoSuccess) {
  Workplace at;
  at.write_text("text.txt", 4000);
  ASSERT_EQ(at.spillway(small_run("run", 1, "64MiB", {})).status, 0);
  ASSERT_EQ(at.spillway({"export", "run", "--out", "model"}).status, 0);
  std::fstream weights(at / "model/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  u64 header = 0;
  weights.read(reinterpret_cast<char*>(&header), sizeof header);
  weights.seekp(static_cast<std::streamoff>(sizeof header + header));
  const std::vector<u32> nan(1 << 14, 0x7fc00000);
  weights.write(reinterpret_cast<const char*>(nan.data()), static_cast<std::streamsize>(nan.size() * sizeof(u32)));
  weights.close();
  const Args args = {"evaluate", "--model",           "model", "--data",   "text.txt", "--tokenizer",
                     "bytes",    "--sequence-length", "32",    "--device", "cpu"};
  const Finished told = at.spillway(args);
  EXPECT_EQ(told.status, 7) << told.err;
  EXPECT_TRUE(mentions(told.err, "[evaluate] expected a finite loss, got nan over")) << told.err;
  Args json = args;
  json.push_back("--json");
  const Finished as_json = at.spillway(json);
  EXPECT_EQ(as_json.status, 7);
  EXPECT_TRUE(mentions(as_json.out, R"({"loss":null,"perplexity":null,"tokens":)") && mentions(as_json.out, R"("nonfinite":"nan"})"))
      << as_json.out;
}

TEST(Evaluate, RefusesWhatItCannotRead) {
  const Workplace place;
  place.write_text("text.txt", 4000);
  ASSERT_EQ(place.spillway(small_run("run", 1, "64MiB", {})).status, 0);
  EXPECT_EQ(place.spillway({"evaluate", "--model", "gpt2-tiny", "--data", "text.txt"}).status, 2);
  EXPECT_EQ(place.spillway({"evaluate", "--model", "run", "--data", "text.txt", "--sequence-length", "100000"}).status, 2);
  EXPECT_EQ(place.spillway({"evaluate", "--model", "run", "--data", "none.txt"}).status, 4);
  ASSERT_EQ(place.spillway({"export", "run", "--out", "folder"}).status, 0);
  EXPECT_EQ(place.spillway({"evaluate", "--model", "folder", "--data", "text.txt"}).status, 0) << "its tokenizer is exported too";
  ASSERT_TRUE(std::filesystem::remove(place / "folder" / "tokenizer.json"));
  const Finished text = place.spillway({"evaluate", "--model", "folder", "--data", "text.txt"});
  EXPECT_EQ(text.status, 2);
  EXPECT_TRUE(mentions(text.err, "--tokenizer bytes")) << text.err;
  EXPECT_EQ(place.spillway({"evaluate", "--model", "folder", "--data", "text.txt", "--tokenizer", "bytes"}).status, 0);
}

// Compares the chosen answers with those that transformers finds most likely (tests/peers/choices.py).
TEST(EvaluateChoices, AreTransformersAnywhere) {
  const Workplace at;
  const auto scores = [&](const std::string& rows, const Args& more) {
    Args all{"evaluate", "--model", test::data("choices"), "--tokenizer", "bytes", "--data", test::data("choices/" + rows),
             "--quiet",  "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Finished run = at.spillway(all);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? nlohmann::json::parse(run.out) : nlohmann::json();
  };
  const nlohmann::json by_sum = scores("rows.jsonl", {}), by_bytes = scores("rows_by_bytes.jsonl", {});
  EXPECT_EQ(by_sum["accuracy"], 1);
  EXPECT_LT(by_sum["accuracy_normalized"], 1) << "planted: the two ways differ";
  EXPECT_EQ(by_bytes["accuracy_normalized"], 1);
  EXPECT_LT(by_bytes["accuracy"], 1);
  EXPECT_EQ(by_sum["rows"], 30);
  EXPECT_GT(by_sum["cut_prompts"], 0);
  for (const Args& way : std::vector<Args>{{"--place-parameters", "nvme", "--nvme", "scratch"},
                                           {"--ranks", "2", "--zero-stage", "3"},
                                           {"--ranks", "2", "--pipeline-stages", "2"}})
    EXPECT_EQ(scores("rows.jsonl", way), by_sum) << way[0];
}

TEST(EvaluateChoices, WithoutNumbersThereIsNoAccuracy) {
  const Workplace at;
  std::filesystem::create_directory(at / "diverged");
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(test::data(std::string("choices/") + file), at / "diverged" / file);
  std::string weights = at.read("diverged/model.safetensors");
  std::fill(weights.end() - 8, weights.end(), '\xff');  // writes two NaN values, which every position reads
  at.write("diverged/model.safetensors", weights);
  const Finished rows =
      at.spillway({"evaluate", "--model", "diverged", "--data", test::data("choices/rows.jsonl"), "--micro-batch-size", "2"});
  EXPECT_EQ(rows.status, 2);
  EXPECT_NE(rows.err.find("[--micro-batch-size] expected no "), std::string::npos) << rows.err;
  const Finished run =
      at.spillway({"evaluate", "--model", "diverged", "--tokenizer", "bytes", "--data", test::data("choices/rows.jsonl"), "--quiet"});
  EXPECT_EQ(run.status, 7) << run.out;
  EXPECT_NE(run.err.find("rows.jsonl, line 1: expected finite likelihoods"), std::string::npos) << run.err;
  EXPECT_EQ(run.out, "");
}

TEST(EvaluateChoices, LinesThatAreNoRowsAreNamed) {
  Workplace at;
  const std::string good = R"({"prompt": "a", "choices": ["b", "c"], "answer": "c"})";
  const auto evaluated = [&](const std::string& line, const Args& more) {
    at.write("rows.jsonl", good + "\n" + line + "\n");
    Args all{"evaluate", "--model", test::data("choices"), "--tokenizer", "bytes", "--data", "rows.jsonl", "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return at.spillway(all);
  };
  at.write("damaged.jsonl", "[1\n" + good + "\n");
  const Finished damaged = at.spillway({"evaluate", "--model", test::data("choices"), "--tokenizer", "bytes", "--data", "damaged.jsonl"});
  EXPECT_NE(damaged.err.find("line 1: expected {\"prompt\": TEXT, \"choices\""), std::string::npos) << damaged.err;
  for (const auto& [line, says] : std::vector<std::pair<std::string, std::string>>{
           {R"({"prompt": "a", "choices": ["b"], "answer": 0})", "`choices` to be "},
           {R"({"prompt": "a", "choices": ["b", 7], "answer": 0})", "got number"},
           {R"({"prompt": "a", "choices": ["b", ""], "answer": 0})", "got an empty one"},
           {R"({"prompt": "a", "choices": ["b", "c"], "answer": 2})", "0 to 1, got 2"},
           {R"({"prompt": "a", "choices": ["b", "c"], "answer": -1})", "0 to 1, got -1"},
           {R"({"prompt": "a", "choices": ["b", "c"], "answer": "d"})", "`answer` to be "},
           {R"({"choices": ["b", "c"], "answer": 0})", "expected the key `prompt`"},
           {R"({"prompt": "", "choices": ["b", "c"], "answer": 0})", "expected a prompt"},
           {R"({"prompt": "a", "choices": ["b", ")" + std::string(70, 'c') + R"("], "answer": 0})", "64 tokens, got a choice of "},
           {"[1", "got no JSON object"}}) {
    const Finished run = evaluated(line, {});
    EXPECT_EQ(run.status, 4) << line;
    EXPECT_NE(run.err.find("rows.jsonl, line 2: expected"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find(says), std::string::npos) << run.err;
    const Finished skipped = evaluated(line, {"--skip-bad-lines", "--json"});
    EXPECT_EQ(skipped.status, 0) << skipped.err;
    EXPECT_EQ(skipped.status == 0 ? nlohmann::json::parse(skipped.out)["bad_lines"] : nlohmann::json(), 1);
  }
}

}  // namespace
}  // namespace spillway::test::evaluate_test
