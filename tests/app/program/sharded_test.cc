// Tests generate and evaluate on several ranks that are threads of this process. Text
// and loss equal those of one rank to the bit, however weights are sharded and placed.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/app/program/support_ranks.h"

namespace spillway::app::sharded_test {
namespace {

using Args = std::vector<std::string>;

Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

struct Sharded : testing::Test {
  TemporaryFolder folder;
  Sharded() {
    folder.write("text.txt", words(20000, 1));
    folder.write("held.txt", words(500, 2));  // makes 31 sequences of 16 tokens
  }
  static std::string words(int bytes, u32 state) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(' ' + (state = state * 1664525u + 1013904223u) % 90);
    return text;
  }
  std::string at(const std::string& name) const { return (folder.path() / name).string(); }

  // Trains `model` for two steps and returns the flags with which other commands load the trained run.
  Args trained(const std::string& model, const Args& more = {}, int ranks = 1) const {
    const std::string out = at("run-" + model);
    const std::vector<Outcome> ran =
        train_on(ranks, Args{"--model", model, "--data", at("text.txt"), "--sequence-length", "16", "--steps", "2", "--learning-rate",
                             "1e-2", "--out", out, "--threads", "1", "--device-memory", "64MiB", "--host-memory", "64MiB"} +
                            more);
    EXPECT_EQ(ran[0].status, 0) << ran[0].err;
    return {"--model", out, "--threads", "1", "--host-memory", "64MiB", "--nvme", at("scratch")};
  }
  Args evaluate(const Args& model) const { return model + Args{"--data", at("held.txt"), "--sequence-length", "16", "--json"}; }

  static std::string said(const std::vector<Outcome>& ranks) {
    for (const Outcome& rank : ranks) EXPECT_EQ(rank.status, 0) << rank.err;
    for (size_t r = 1; r < ranks.size(); ++r) EXPECT_EQ(ranks[r].out + ranks[r].err, "") << "rank " << r << " speaks";
    return ranks[0].out;
  }
};

struct Cell {
  int ranks;
  Args flags;
};
const std::vector<Cell> kCells = {
    {2, {"--zero-stage", "0"}},
    {2, {"--zero-stage", "3", "--place-parameters", "device"}},
    {3, {"--zero-stage", "3", "--place-parameters", "nvme"}},
    {2, {"--pipeline-stages", "2", "--place-parameters", "host"}},
    {4, {"--pipeline-stages", "2", "--zero-stage", "3", "--place-parameters", "nvme"}},
};
const Args kRoom = {"--device-memory", "64MiB"};

using ShardedRelease = Sharded;

TEST_F(ShardedRelease, EvaluateGivesTheBitsOfOneRank) {
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    const Args base = evaluate(trained(model)) + kRoom;
    for (const char* rows : {"1", "4"}) {
      const Args args = base + Args{"--micro-batch-size", rows};
      const std::string want = said(run_on(1, Command::evaluate, args));
      EXPECT_NE(want.find("\"loss\":"), std::string::npos) << want;
      for (const Cell& cell : kCells) EXPECT_EQ(said(run_on(cell.ranks, Command::evaluate, args + cell.flags)), want) << cell.ranks;
    }
  }
}

TEST_F(ShardedRelease, GenerateGivesTheTextOfOneRank) {
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    const Args base = trained(model) + kRoom + Args{"--prompt", "in the beginning", "--max-tokens", "12"};
    for (const Args& sampling : {Args{"--temperature", "0"}, Args{"--temperature", "1.5", "--seed", "7"}}) {
      const std::string want = said(run_on(1, Command::generate, base + sampling));
      EXPECT_GT(want.size(), 25u) << want;
      for (const Cell& cell : kCells) EXPECT_EQ(said(run_on(cell.ranks, Command::generate, base + sampling + cell.flags)), want);
    }
  }
}

// A model that does not fit on one rank's device fits on two ranks, each of which holds half of it.
TEST_F(Sharded, AModelLargerThanARanksBudgetGenerates) {
  const Args base = trained("llama-tiny") + Args{"--prompt", "in the beginning", "--max-tokens", "8"};
  const std::string want = said(run_on(1, Command::generate, base + kRoom));
  const Args small = base + Args{"--device-memory", "3MiB", "--place-parameters", "device"};
  EXPECT_EQ(run_on(1, Command::generate, small)[0].status, 3);
  for (const Args& more : {Args{"--zero-stage", "3"}, Args{}, Args{"--pipeline-stages", "2"}})
    EXPECT_EQ(said(run_on(2, Command::generate, small + more)), want);
}

TEST_F(Sharded, AnErrorIsOneMessageOfAll) {
  const auto expect = [](const std::vector<Outcome>& ranks, int status, const std::string& message) {
    for (const Outcome& rank : ranks) EXPECT_EQ(rank.status, status) << rank.err;
    EXPECT_NE(ranks[0].err.find(message), std::string::npos) << ranks[0].err;
    for (size_t r = 1; r < ranks.size(); ++r) EXPECT_EQ(ranks[r].out + ranks[r].err, "");
  };
  const Args model = trained("gpt2-tiny") + kRoom, data = evaluate(model), prompt = model + Args{"--prompt", "a", "--max-tokens", "4"};
  expect(run_on(3, Command::evaluate, data + Args{"--pipeline-stages", "2"}), 2, "give --ranks 2");
  expect(run_on(7, Command::evaluate, data + Args{"--pipeline-stages", "7"}), 2, "7");
  expect(run_on(2, Command::generate, model + Args{"--prompt", ""}), 2, "[generate] expected a prompt");
  expect(run_on(2, Command::generate, prompt, {{}, {"--temperature", "0.5"}}), 2, "`temperature` 0.8 on rank 0 and 0.5 on rank 1");
  expect(run_on(2, Command::evaluate, evaluate({"--model", "gpt2-tiny"}) + kRoom), 2, "has no weights");
  expect(run_on(2, Command::generate, prompt + Args{"--place-parameters", "nvme"}, {{}, {"--nvme", "/proc/nowhere"}}), 2,
         "rank 1 on host here: [");
}

// An exported model has the same bytes, however many ranks trained it.
TEST_F(Sharded, AnExportDoesNotKnowHowManyRanksTrained) {
  const auto exported = [&](const std::string& model, int ranks, const Args& more) {
    const std::string run = trained(model, more, ranks)[1], out = at("exported");
    const Outcome done = run_app({"export", run, "--out", out});
    EXPECT_EQ(done.status, 0) << done.err;
    std::string all;
    for (const char* name : {"model.safetensors", "config.json"}) all += *read_whole(out + "/" + name);
    std::filesystem::remove_all(run);
    std::filesystem::remove_all(out);
    return all;
  };
  const Args nvme = {"--nvme", at("scratch"), "--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme"};
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    const std::string one = exported(model, 1, {}), two = exported(model, 2, {"--zero-stage", "0"});
    EXPECT_GT(one.size(), 3'000'000u);
    EXPECT_TRUE(exported(model, 2, {"--pipeline-stages", "2"}) == one) << model;
    EXPECT_TRUE(exported(model, 2, nvme + Args{"--zero-stage", "3"}) == two) << model;
    EXPECT_TRUE(exported(model, 4, nvme + Args{"--zero-stage", "3", "--pipeline-stages", "2"}) == two) << model;
  }
}

}  // namespace
}  // namespace spillway::app::sharded_test
