// A program's own training run: what it hears, how it ends it early, and that the same run is the command's.
#include "app/training.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/checkpoints/best.h"
#include "app/checkpoints/checkpoint.h"
#include "tests/app/support_app.h"

namespace spillway::app::training_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class ProgramTraining : public testing::Test {
 protected:
  Words flags(const Words& more) const {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "and it was so, " + std::to_string(i % 7) + ". ";
    Words all{"--model", "gpt2-tiny", "--data", folder_.write("t.txt", text), "--sequence-length", "32", "--steps", "8", "--threads", "1",
              "--quiet", "--out",     run()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string run() const { return (folder_.path() / "run").string(); }
  std::vector<Json> metrics() const {
    std::ifstream file(run() + "/metrics.jsonl");
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  TrainingResult train(Training& training) {
    std::ostringstream results, log;
    const TrainingResult result = training.run(results, log);
    results_ = results.str();
    return result;
  }
  const TemporaryFolder folder_;
  std::string results_;
};

// A learning rate that makes each validation worse than the one before.
const Words kWorse{"--validation-fraction", "0.2", "--validate-every", "1", "--learning-rate", "1", "--warmup-steps", "0"};

TEST_F(ProgramTraining, HearsWhatTheMetricsSay) {
  Training training(flags({"--validation-fraction", "0.2", "--validate-every", "4", "--checkpoint-every", "4"}));
  std::vector<StepEvent> steps;
  std::vector<ValidationEvent> validations;
  std::vector<i64> saves;
  training.callbacks.on_step = [&](const StepEvent& e) { steps.push_back(e); };
  training.callbacks.on_validate = [&](const ValidationEvent& e) { validations.push_back(e); };
  training.callbacks.on_save = [&](const SaveEvent& e) {
    EXPECT_EQ(e.checkpoint, checkpoint_path(run(), e.step));
    EXPECT_TRUE(std::filesystem::exists(e.checkpoint));
    saves.push_back(e.step);
  };
  const TrainingResult result = train(training);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.checkpoint, checkpoint_path(run(), 8));
  EXPECT_NE(results_.find("done: step 8"), std::string::npos) << results_;
  EXPECT_EQ(saves, (std::vector<i64>{4, 8}));
  const std::vector<Json> lines = metrics();
  ASSERT_EQ(steps.size(), 8u);
  ASSERT_EQ(lines.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(steps[i].step, lines[i]["step"]);
    EXPECT_EQ(steps[i].loss, lines[i]["loss"]);
    EXPECT_EQ(steps[i].grad_norm, lines[i]["grad_norm"]);
    EXPECT_EQ(steps[i].learning_rate, lines[i]["lr"]);
    EXPECT_EQ(steps[i].tokens, 32);
    EXPECT_FALSE(steps[i].skipped);
  }
  ASSERT_EQ(validations.size(), 2u);
  EXPECT_EQ(validations[0].step, 4);
  EXPECT_EQ(validations[0].loss, lines[3]["validation_loss"]);
  EXPECT_TRUE(validations[0].best);
}

TEST_F(ProgramTraining, PatienceEndsItAndTheBestStays) {
  Words worse = kWorse;
  worse.insert(worse.end(), {"--keep", "1"});
  Training training(flags(worse));
  std::vector<ValidationEvent> validations;
  training.callbacks.on_validate = [&](const ValidationEvent& e) { validations.push_back(e); };
  training.callbacks.patience = 2;
  training.callbacks.keep_best = true;
  EXPECT_TRUE(train(training).finished);
  // The best one, and two that are no better.
  ASSERT_GE(validations.size(), 3u);
  ASSERT_LT(validations.size(), 8u) << "nothing was stopped early: the test's learning rate is too small";
  const ValidationEvent& kept = validations[validations.size() - 3];
  EXPECT_TRUE(kept.best);
  for (const ValidationEvent& v : validations) EXPECT_GE(v.loss, kept.loss);
  EXPECT_FALSE(validations[validations.size() - 1].best);
  EXPECT_FALSE(validations[validations.size() - 2].best);
  const std::optional<Best> best = read_best(run());
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, kept.step);
  EXPECT_EQ(best->loss, kept.loss);
  EXPECT_EQ(checkpoints(run()), (std::vector{checkpoint_path(run(), kept.step), checkpoint_path(run(), validations.back().step)}));
  EXPECT_EQ(find_checkpoint(run(), "best"), checkpoint_path(run(), kept.step));
  const Outcome evaluated = run_app({"evaluate", "--model", run(), "--checkpoint", "best", "--data", folder_.path() / "t.txt", "--threads",
                                     "1", "--sequence-length", "32", "--json"});
  EXPECT_EQ(evaluated.status, 0) << evaluated.err;
}

TEST_F(ProgramTraining, WithoutKeepBestNoneIsKnown) {
  Training training(flags({}));
  train(training);
  EXPECT_FALSE(read_best(run()));
  EXPECT_NE(message_of([&] { find_checkpoint(run(), "best"); }).find("no checkpoint that is known to be the best"), std::string::npos);
}

// At each of the moments at which that is asked: after model and data, the plan, the tiers' memory, and the weights.
TEST_F(ProgramTraining, GivesUpBeforeTheFirstStep) {
  i64 moments = 0, steps = 0;
  for (i64 at = 1; at <= 4; ++at) {
    Training training(flags({}));
    moments = 0;
    training.callbacks.on_step = [&](const StepEvent&) { ++steps; };
    training.callbacks.gives_up = [&] { return ++moments == at; };
    const TrainingResult result = train(training);
    EXPECT_EQ(moments, at);
    EXPECT_FALSE(result.finished);
    EXPECT_TRUE(result.checkpoint.empty());
    EXPECT_EQ(steps, 0);
  }
  Training training(flags({}));
  moments = 0;
  training.callbacks.gives_up = [&] { return ++moments > 4; };
  EXPECT_TRUE(train(training).finished);
}

// Stopped by the program, gone on with by the command, with the losses of a run that never stopped.
TEST_F(ProgramTraining, StopsAndTheCommandGoesOn) {
  Training training(flags({}));
  i64 seen = 0;
  training.callbacks.on_step = [&](const StepEvent& e) { seen = e.step; };
  training.callbacks.wants_stop = [&] { return seen == 0; };
  const TrainingResult result = train(training);
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.checkpoint, checkpoint_path(run(), 1));
  Words words = flags({});
  words.insert(words.begin(), "train");
  const Outcome rest = run_app(words);
  EXPECT_EQ(rest.status, 0) << rest.err;
  const std::vector<Json> stopped = metrics();
  std::filesystem::remove_all(run());
  Training straight(flags({}));
  train(straight);
  ASSERT_EQ(metrics().size(), stopped.size());
  for (size_t i = 0; i < stopped.size(); ++i) EXPECT_EQ(metrics()[i]["loss"], stopped[i]["loss"]) << i;
}

TEST_F(ProgramTraining, SameEventsOnRanksThatAreThreads) {
  Words worse = kWorse;
  worse.insert(worse.end(), {"--ranks", "2", "--communicator", "local"});
  Training training(flags(worse));
  int validations = 0;
  training.callbacks.on_validate = [&](const ValidationEvent&) { ++validations; };
  training.callbacks.patience = 1;
  EXPECT_TRUE(train(training).finished);
  EXPECT_EQ(static_cast<size_t>(validations), metrics().size());
  EXPECT_LT(validations, 8);
}

TEST_F(ProgramTraining, WhatACallbackThrowsEndsTheRun) {
  Training training(flags({}));
  training.callbacks.on_step = [](const StepEvent&) { throw std::runtime_error("enough"); };
  EXPECT_NE(message_of([&] { train(training); }).find("enough"), std::string::npos);
}

TEST_F(ProgramTraining, RefusesWhatTheCommandRefuses) {
  EXPECT_NE(message_of([] { Training({"--modle", "x"}); }).find("--model"), std::string::npos);
  EXPECT_NE(message_of([] {
              Training({"--model", "gpt2-tiny", "--data", "x"});
            }).find("[training] expected --out FOLDER"),
            std::string::npos);
  Training ranks(flags({"--ranks", "2"}));
  EXPECT_NE(message_of([&] { train(ranks); }).find("[training] expected a launcher"), std::string::npos);
}

TEST(BestCheckpoint, ADamagedFileIsRefused) {
  const TemporaryFolder folder;
  folder.write("best.json", "{\"step\": \"x\"}");
  EXPECT_NE(message_of([&] { read_best(folder.path()); }).find("expected an object with step and validation_loss"), std::string::npos);
  write_best(folder.path(), {3, 1.5});
  EXPECT_FALSE(read_best(folder.path())) << "its checkpoint is not there";
}

}  // namespace
}  // namespace spillway::app::training_test
