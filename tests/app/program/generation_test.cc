// Tests generate with a key/value cache against transformers' greedy continuations, token for token: alone and in batches,
// on several ranks and tiers. Texts may grow beyond the model's positions. Files that hold no prompts are refused.
#include "trainer/text/generation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "data/safetensors/safetensors.h"
#include "tests/app/program/support_ranks.h"
#include "tests/support/fixtures.h"

namespace spillway::app::generation_test {
namespace {

using Args = std::vector<std::string>;
using Json = nlohmann::json;

std::vector<i32> ids_in(const data::SafetensorsReader& file, const std::string& name) {
  const data::TensorInfo& info = *file.find(name);
  std::vector<i64> ids(static_cast<size_t>(info.bytes() / 8));
  file.read(info, 0, std::as_writable_bytes(std::span(ids)));
  return {ids.begin(), ids.end()};
}

// Tokens are bytes in these tests, and all ids are below 128.
std::string text_of(const std::vector<i32>& ids) { return {ids.begin(), ids.end()}; }

struct Generation : testing::Test {
  TemporaryFolder folder;

  std::string prompts(const std::vector<std::vector<i32>>& all) const {
    std::string lines;
    for (const auto& ids : all) lines += Json{{"prompt", text_of(ids)}}.dump() + "\n";
    folder.write("prompts.jsonl", lines);
    return (folder.path() / "prompts.jsonl").string();
  }
  static Args base(const std::string& model, int max_tokens) {
    return {"--model",      test::data(model).string(), "--tokenizer", "bytes", "--precision", "fp32", "--temperature", "0",
            "--max-tokens", std::to_string(max_tokens), "--threads",   "1",     "--quiet"};
  }
  std::vector<std::vector<i32>> tokens(Args args, const std::vector<std::vector<i32>>& all, const Args& more = {}, int ranks = 1) const {
    args.insert(args.end(), {"--prompts", prompts(all)});
    args.insert(args.end(), more.begin(), more.end());
    const std::vector<Outcome> ran = run_on(ranks, Command::generate, args);
    for (const Outcome& rank : ran) EXPECT_EQ(rank.status, 0) << rank.err;
    std::vector<std::vector<i32>> got;
    std::istringstream lines(ran[0].out);
    for (std::string line; std::getline(lines, line);) got.push_back(Json::parse(line)["tokens"]);
    return got;
  }
  std::vector<i32> alone(const std::string& model, const std::vector<i32>& prompt, int max_tokens) const {
    return tokens(base(model, max_tokens), {prompt}).front();
  }
};

struct GreedyText : Generation, testing::WithParamInterface<const char*> {};

TEST_P(GreedyText, IsTransformersTokenForTokenInAnyBatchAnywhere) {
  const data::SafetensorsReader file(test::data(std::string("generate/") + GetParam() + ".safetensors"));
  std::vector<std::vector<i32>> prompts, want;
  for (const char* i : {"0", "1", "2"}) {
    prompts.push_back(ids_in(file, std::string(i) + "/prompt"));
    want.push_back(ids_in(file, std::string(i) + "/new_ids"));
    ASSERT_EQ(want.back().size(), 40u);
  }
  EXPECT_NE(prompts[0].size(), prompts[2].size());
  for (const char* rows : {"1", "2", "8"}) EXPECT_EQ(tokens(base(GetParam(), 40), prompts, {"--batch-size", rows}), want) << rows;
  const std::string scratch = (folder.path() / "scratch").string();
  EXPECT_EQ(tokens(base(GetParam(), 40), prompts, {"--place-parameters", "nvme", "--nvme", scratch, "--device-memory", "8MiB"}), want);
  EXPECT_EQ(tokens(base(GetParam(), 40), prompts, {"--zero-stage", "3", "--batch-size", "2"}, 2), want);
  EXPECT_EQ(tokens(base(GetParam(), 40), prompts, {"--pipeline-stages", "2"}, 2), want);
}

INSTANTIATE_TEST_SUITE_P(Models, GreedyText,
                         testing::Values("gpt2-tiny", "llama-tiny", "gemma3-text-tiny", "mistral-window-tiny", "qwen3-moe-tiny",
                                         "qwen3-tiny"),
                         [](const auto& entry) {
                           std::string name = entry.param;
                           std::erase(name, '-');
                           return name;
                         });

// When the cache is full, it is rebuilt from the last half of the positions (32 tokens). The text continues as from these tokens alone.
TEST_F(Generation, BeyondThePositionsTheOlderHalfFallsOut) {
  const std::vector<i32> prompt{7, 50, 3, 22, 90};
  const std::vector<i32> whole = alone("gpt2-tiny", prompt, 150);
  ASSERT_EQ(whole.size(), 150u);
  std::vector<i32> text = prompt;
  int count = 60;  // the prompt's 5 tokens leave 59 positions, and the last position predicts the 60th new token
  while (text.size() < prompt.size() + whole.size()) {
    const auto seen = text.size() == prompt.size() ? text : std::vector(text.end() - 32, text.end());
    const std::vector<i32> part = alone("gpt2-tiny", seen, count);
    text.insert(text.end(), part.begin(), part.end());
    count = 33;
  }
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], text[prompt.size() + i]) << i;
}

TEST_F(Generation, OfALongPromptTheLastHalfOfThePositionsCounts) {
  std::vector<i32> prompt;
  for (i32 i = 0; i < 200; ++i) prompt.push_back(i * 37 % 97);
  EXPECT_EQ(alone("gpt2-tiny", prompt, 20), alone("gpt2-tiny", {prompt.end() - 32, prompt.end()}, 20));
}

// For all lengths, a forward pass has no more positions than the plan allows, and the cache has room for every token that is still to be
// generated.
TEST_F(Generation, LengthsHoldWhatComes) {
  for (const i64 positions : {1, 2, 3, 64, 1000, 131072}) {
    for (const i64 prompt : {1, 2, 15, 63, 64, 65, 255, 256, 257, 999, 5000}) {
      for (const i64 more : {1, 2, 100}) {
        const TextLengths lengths = text_lengths(prompt, more, positions);
        EXPECT_GE(lengths.pass, 1);
        EXPECT_LE(lengths.pass, std::max<i64>(1, std::min<i64>(256, positions / 2)));
        const i64 kept = prompt < positions ? prompt : std::max<i64>(1, positions / 2);
        EXPECT_LE(ceil_div(kept, lengths.pass), ceil_div(kept, 256) + (lengths.pass < 256 ? 2 : 0));
        EXPECT_GE(lengths.cache, std::min(positions, kept + more - 1));
        EXPECT_LE(lengths.cache, std::min(positions, kept + more - 1) + lengths.pass);
      }
    }
  }
}

TEST_F(Generation, EveryPromptHasASeedOfItsOwn) {
  const Args warm{"--temperature", "1.5", "--seed", "11"};
  Args args = base("gpt2-tiny", 12);
  args.erase(std::ranges::find(args, "--temperature"), std::ranges::find(args, "--temperature") + 2);
  const auto together = tokens(args, {{5}, {5}, {5}}, {"--temperature", "1.5", "--seed", "11", "--batch-size", "3"});
  EXPECT_NE(together[0], together[1]);
  EXPECT_EQ(together[1], tokens(args, {{5}}, {"--temperature", "1.5", "--seed", "12"}).front());
  EXPECT_EQ(together, tokens(args, {{5}, {5}, {5}}, {"--temperature", "1.5", "--seed", "11", "--batch-size", "2"}));
}

TEST_F(Generation, WhatIsNoFileOfPromptsIsRefused) {
  const auto refused = [&](const std::string& name, const std::string& text, int status, const std::string& why) {
    folder.write(name, text);
    Args args = base("gpt2-tiny", 2);
    args.insert(args.end(), {"--prompts", (folder.path() / name).string()});
    const Outcome f = run_on(1, Command::generate, args)[0];
    EXPECT_EQ(f.status, status) << f.err;
    EXPECT_NE(f.err.find(why), std::string::npos) << f.err;
    EXPECT_EQ(f.out, "");
  };
  refused("none.txt", "", 4, "expected one prompt per line in ");
  refused("blank.txt", "A\n\nB\n", 2, "blank.txt, line 2: expected a prompt of at least one token");
  refused("broken.jsonl", "{\"prompt\": \"A\"}\n{\"prompt\": \n", 4, "broken.jsonl, line 2: expected {\"prompt\": TEXT}");
  refused("number.jsonl", "{\"prompt\": 3}\n", 4, "number.jsonl, line 1: expected {\"prompt\": TEXT}");
  refused("talk.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", 2, "expected a chat template");
  refused("beyond.txt", "~\n", 2, "beyond.txt, line 1: expected token ids below the model's vocabulary of 97");
}

}  // namespace
}  // namespace spillway::app::generation_test
