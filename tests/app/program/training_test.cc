// Tests training that another program starts through the library: its callbacks, how
// the program ends a training early, and that the train command can continue it.
#include "trainer/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/app/support_app.h"
#include "trainer/checkpoints/best.h"
#include "trainer/checkpoints/checkpoint.h"

namespace spillway::app::training_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

struct Training : Trainer {
  explicit Training(const Words& flags) : Trainer(train_settings(flags)) {}
};

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
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  TrainingResult train(Training& training) {
    results_.clear();
    LineMessages lines([&](std::string_view line) { results_ += std::string(line) + "\n"; });
    return training.fit({}, lines);
  }
  std::string said() const { return text_of(run() + "/log.txt"); }
  // Trains until the run is finished, in several starts. Each start is stopped
  // after its first validation and before the next. Returns the number of starts.
  int train_in_pieces(const Words& words, i64 patience) {
    for (int starts = 1;; ++starts) {
      Training training(words);
      training.callbacks.patience = patience;
      bool validated = false;
      training.callbacks.on_validate = [&](const ValidationEvent&) { validated = true; };
      training.callbacks.wants_stop = [&] { return validated; };
      if (train(training).finished || starts == 50) return starts;
    }
  }
  const TemporaryFolder folder_;
  std::string results_;
};

// Sets a learning rate so high that each validation is worse than the one before.
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
  // training stops when two validations in a row were no better than the best one
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
  EXPECT_NE(message_of([&] { find_checkpoint(run(), "best"); }).find("has no best checkpoint"), std::string::npos);
}

// The program is asked whether to give up at four moments: after loading model and data, after the plan, after allocating memory, and after
// loading weights.
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

// The train command continues a run that the program stopped. The losses equal those of a run that never stopped.
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

// The train command, which has no option keep_best, prunes checkpoints. It must still keep the best one, which the run's files name.
TEST_F(ProgramTraining, TheBestStaysWhenTheCommandGoesOn) {
  Words worse = kWorse;
  worse.insert(worse.end(), {"--keep", "1", "--checkpoint-every", "1", "--lr-schedule", "constant"});
  Training training(flags(worse));
  i64 best = 0, validations = 0;
  training.callbacks.keep_best = true;
  training.callbacks.on_validate = [&](const ValidationEvent& e) { ++validations, best = e.best ? e.step : best; };
  training.callbacks.wants_stop = [&] { return validations == 4; };
  EXPECT_FALSE(train(training).finished);
  ASSERT_LT(best, 4) << "no validation was worse: the test's learning rate is too small";
  Words words = flags(worse);
  words.insert(words.begin(), "train");
  const Outcome rest = run_app(words);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(checkpoints(run()), (std::vector{checkpoint_path(run(), best), checkpoint_path(run(), 8)}));
  EXPECT_EQ(find_checkpoint(run(), "best"), checkpoint_path(run(), best));
}

TEST_F(ProgramTraining, ASpoiltBestFileIsSaidAndWrittenAnew) {
  Words worse = kWorse;
  worse.insert(worse.end(), {"--keep", "1", "--checkpoint-every", "1", "--lr-schedule", "constant"});
  Training training(flags(worse));
  i64 best = 0, validations = 0;
  training.callbacks.keep_best = true;
  training.callbacks.on_validate = [&](const ValidationEvent& e) { ++validations, best = e.best ? e.step : best; };
  training.callbacks.wants_stop = [&] { return validations == 4; };
  EXPECT_FALSE(train(training).finished);
  std::ofstream(run() + "/best.json") << "{\"step\": 99999999999999999999}";
  Words words = flags(worse);
  words.insert(words.begin(), "train");
  const Outcome rest = run_app(words);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_NE(rest.err.find("best.json: expected a JSON object with step"), std::string::npos) << rest.err;
  ASSERT_TRUE(read_best(run()));
  EXPECT_EQ(read_best(run())->step, best);
}

TEST_F(ProgramTraining, PatienceIsCountedOverRestarts) {
  Words worse = kWorse;
  worse.insert(worse.end(), {"--checkpoint-every", "1"});
  Training straight(flags(worse));
  straight.callbacks.patience = 3;
  EXPECT_TRUE(train(straight).finished);
  const std::vector<Json> at_once = metrics();
  ASSERT_LT(at_once.size(), 8u) << "nothing was stopped early: the test's learning rate is too small";
  std::filesystem::remove_all(run());
  EXPECT_GT(train_in_pieces(flags(worse), 3), 2);
  ASSERT_EQ(metrics().size(), at_once.size());
  for (size_t i = 0; i < at_once.size(); ++i) {
    EXPECT_EQ(metrics()[i]["loss"], at_once[i]["loss"]) << i;
    EXPECT_EQ(metrics()[i]["validation_loss"], at_once[i]["validation_loss"]) << i;
  }
  EXPECT_EQ(train_in_pieces(flags(worse), 3), 1) << "a run that has lost its patience takes no further step";
  EXPECT_EQ(metrics().size(), at_once.size());
}

TEST_F(ProgramTraining, AnotherRunsPatienceIsNotThisOnes) {
  Words worse = kWorse;
  worse.insert(worse.end(), {"--checkpoint-every", "1"});
  Training first(flags(worse));
  first.callbacks.patience = 2;
  const std::filesystem::path from = train(first).checkpoint;
  Words other = flags(worse);
  *std::find(other.begin(), other.end(), run()) = (folder_.path() / "other").string();
  other.insert(other.end(), {"--resume", from.string()});
  Training second(other);
  second.callbacks.patience = 2;
  int validations = 0;
  second.callbacks.on_validate = [&](const ValidationEvent&) { ++validations; };
  train(second);
  EXPECT_GT(validations, 0);
}

// The program asks for a stop after step 3 and again in that step's validation, which then ends early. The next start repeats it.
TEST_F(ProgramTraining, AStopDuringAValidationSavesAndTheNextStartMakesItUp) {
  Words words{"--validation-fraction", "0.2", "--validate-every", "3", "--checkpoint-every", "100", "--metrics-csv"};
  Training straight(flags(words));
  train(straight);
  const std::vector<Json> whole = metrics();
  const std::string csv = text_of(run() + "/metrics.csv");
  for (const Words& more : {Words{}, Words{"--ranks", "2", "--communicator", "local", "--global-batch-size", "2"}}) {
    std::filesystem::remove_all(run());
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    Training training(flags(all));
    i64 asked = 0;
    training.callbacks.wants_stop = [&] { return ++asked == 4 || asked == 5; };
    EXPECT_FALSE(train(training).finished);
    EXPECT_NE(said().find("stopped after step 3 of 8: saved; "), std::string::npos) << said();
    EXPECT_EQ(metrics().size(), 3u);
    EXPECT_FALSE(metrics().back().contains("validation_loss")) << "half a validation is none";
    EXPECT_EQ(checkpoints(run()), (std::vector{checkpoint_path(run(), 3)}));
    EXPECT_TRUE(read_progress(checkpoint_path(run(), 3)).standing.owes_validation);
    Training rest(flags(all));
    std::vector<i64> validated;
    rest.callbacks.on_validate = [&](const ValidationEvent& e) { validated.push_back(e.step); };
    EXPECT_TRUE(train(rest).finished);
    EXPECT_EQ(validated, (std::vector<i64>{3, 6, 8}));
    ASSERT_EQ(metrics().size(), 8u);
    EXPECT_TRUE(metrics()[2].contains("validation_loss"));
    if (!more.empty()) continue;
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(metrics()[i].value("validation_loss", 0.0), whole[i].value("validation_loss", 0.0)) << i;
    EXPECT_EQ(std::ranges::count(text_of(run() + "/metrics.csv"), '\n'), std::ranges::count(csv, '\n'));
  }
}

// If the validation after the last step is interrupted, the run is not finished. The next start repeats the validation.
TEST_F(ProgramTraining, TheLastValidationIsMadeUpToo) {
  const Words words{"--validation-fraction", "0.2", "--validate-every", "8"};
  Training training(flags(words));
  i64 asked = 0;
  training.callbacks.wants_stop = [&] { return ++asked > 8; };
  EXPECT_FALSE(train(training).finished);
  EXPECT_FALSE(metrics().back().contains("validation_loss"));
  Training rest(flags(words));
  EXPECT_TRUE(train(rest).finished);
  EXPECT_TRUE(metrics().back().contains("validation_loss"));
  Training again(flags(words));
  train(again);
  EXPECT_NE(results_.find("finished: "), std::string::npos) << results_;
}

// A validation that is interrupted twice is left out. A run whose time limit is too short for one would otherwise repeat it forever.
TEST_F(ProgramTraining, AValidationThatIsInterruptedTwiceIsLeftOut) {
  const Words words{"--validation-fraction", "0.2", "--validate-every", "3"};
  i64 asked = 0;
  Training first(flags(words));
  first.callbacks.wants_stop = [&] { return ++asked >= 4; };
  train(first);
  Training second(flags(words));
  second.callbacks.wants_stop = [] { return true; };
  EXPECT_FALSE(train(second).finished);
  EXPECT_NE(said().find("was interrupted again"), std::string::npos) << said();
  Training third(flags(words));
  std::vector<i64> validated;
  third.callbacks.on_validate = [&](const ValidationEvent& e) { validated.push_back(e.step); };
  EXPECT_TRUE(train(third).finished);
  EXPECT_EQ(validated, (std::vector<i64>{6, 8}));
}

// The end time that Slurm gives is in the past, so the run begins no step, and no finished step is lost.
TEST_F(ProgramTraining, AStepThatDoesNotFitInTheTimeLeftIsNotBegun) {
  struct Variable {
    Variable(const char* of, const std::string& value) : name(of) { ::setenv(of, value.c_str(), 1); }
    ~Variable() { ::unsetenv(name); }
    const char* name;
  };
  const Variable end("SLURM_JOB_END_TIME", std::to_string(std::time(nullptr) - 10));
  for (const Words& more : {Words{}, Words{"--time-limit", "1000h"}, Words{"--ranks", "2", "--communicator", "local"}}) {
    std::filesystem::remove_all(run());
    Training training(flags(more));
    EXPECT_FALSE(train(training).finished);
    EXPECT_NE(said().find("the time limit is near: step 1 was not started"), std::string::npos) << said();
    EXPECT_TRUE(metrics().empty());
  }
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
  EXPECT_NE(message_of([&] { read_best(folder.path()); }).find("expected a JSON object with step"), std::string::npos);
  write_best(folder.path(), {3, 1.5});
  EXPECT_FALSE(read_best(folder.path())) << "its checkpoint is not there";
}

}  // namespace
}  // namespace spillway::app::training_test
