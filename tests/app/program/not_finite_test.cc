// Tests training whose loss or gradients become NaN or infinite: the messages
// and how the run ends, on one rank, on two ranks, and on two pipeline stages.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/app/program/support_ranks.h"

namespace spillway::app::not_finite_test {
namespace {

struct NotFinite : testing::Test {
  const TemporaryFolder folder;
  const std::string run = (folder.path() / "run").string();

  // Trains with so high a learning rate that the loss is not finite after the first step.
  std::vector<Outcome> train(int ranks, const std::vector<std::string>& more) const {
    folder.write("text.txt", std::string(4000, 'a') + std::string(4000, 'b'));
    std::vector<std::string> args{"--model",
                                  "gpt2-tiny",
                                  "--data",
                                  (folder.path() / "text.txt").string(),
                                  "--sequence-length",
                                  "16",
                                  "--steps",
                                  "30",
                                  "--learning-rate",
                                  "1e38",
                                  "--lr-schedule",
                                  "constant",
                                  "--warmup-steps",
                                  "0",
                                  "--threads",
                                  "1",
                                  "--device-memory",
                                  "64MiB",
                                  "--host-memory",
                                  "64MiB",
                                  "--out",
                                  run};
    args.insert(args.end(), more.begin(), more.end());
    return train_on(ranks, args);
  }
  std::string log_of_run() const {
    std::ifstream file(run + "/log.txt");
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

void expect_all(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(NotFinite, ALossIsNamedAndTwentyInARowEndTheRun) {
  const Outcome alone = train(1, {}).front();
  EXPECT_EQ(alone.status, 7);
  expect_all(alone.err, {"step skipped: the loss is not finite",
                         "not finite in 20 steps in a row, the last at step 21: the loss is not finite", "nothing was saved yet"});
}

TEST_F(NotFinite, TheRanksOfALossAreNamed) {
  const std::vector<Outcome> two = train(2, {});
  for (const Outcome& rank : two) EXPECT_EQ(rank.status, 7);
  expect_all(two[0].err, {"step skipped: the loss of rank 0 on ", ", rank 1 on "});
}

// The first pipeline stage computes no loss, so its messages name the rank of the last stage.
TEST_F(NotFinite, OfTwoStagesTheLastHasTheLoss) {
  const std::vector<Outcome> stages = train(2, {"--pipeline-stages", "2", "--gradient-accumulation-steps", "2"});
  for (const Outcome& rank : stages) EXPECT_EQ(rank.status, 7);
  expect_all(stages[0].err, {"step skipped: the loss of rank 1 on "});
  EXPECT_EQ(stages[0].err.find("the loss of rank 0"), std::string::npos) << stages[0].err;
}

TEST_F(NotFinite, AnAnomalyEndsTheRunAtItsOp) {
  const Outcome alone = train(1, {"--detect-anomaly"}).front();
  EXPECT_EQ(alone.status, 7);
  const std::vector<std::string> parts = {"[anomaly] step 2, block ", "the forward of ",
                                          " is the first whose result is not finite\n  its result: f32 [",
                                          "\n  its input 0, transformer.wte.weight: f32 [", "\n  nothing was saved yet"};
  expect_all(alone.err, parts);
  expect_all(log_of_run(), parts);
}

TEST_F(NotFinite, TheRankOfAnAnomalyIsNamed) {
  const std::vector<Outcome> two = train(2, {"--detect-anomaly"});
  for (const Outcome& rank : two) EXPECT_EQ(rank.status, 7);
  expect_all(two[0].err + two[1].err, {"[anomaly] step 2, rank ", " on ", "the forward of "});
  expect_all(log_of_run(), {"[anomaly] step 2, rank "});
}

}  // namespace
}  // namespace spillway::app::not_finite_test
