// Tests a run that diverges in one step: earlier checkpoints stay, and the error message and the next start use the last good one.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/app/support_app.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/trainer.h"

namespace spillway::app::diverging_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// Trains by plain SGD with a learning rate that is multiplied by `gamma` after ten steps.
struct Diverging : testing::Test {
  const TemporaryFolder folder;
  const std::string run = (folder.path() / "run").string();

  Diverging() { folder.write("text.txt", std::string(4000, 'a') + std::string(4000, 'b')); }
  Words flags(const Words& more, const std::string& gamma = "1e30") const {
    Words all{"--model",
              "gpt2-tiny",
              "--data",
              (folder.path() / "text.txt").string(),
              "--sequence-length",
              "16",
              "--threads",
              "1",
              "--out",
              run,
              "--device",
              "cpu",
              "--optimizer",
              "sgd",
              "--learning-rate",
              "1e-3",
              "--warmup-steps",
              "0",
              "--lr-schedule",
              "step",
              "--lr-step-size",
              "10",
              "--lr-gamma",
              gamma,
              "--tensorboard",
              "off"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome train(Words words) const {
    words.insert(words.begin(), "train");
    return run_app(words);
  }
  std::vector<i64> saved() const {
    std::vector<i64> steps;
    for (const fs::path& c : checkpoints(run)) steps.push_back(read_progress(c).step);
    return steps;
  }
  double loss_of(i64 step) const {
    const Outcome f =
        run_app({"evaluate", "--model", checkpoint_path(run, step).string(), "--data", (folder.path() / "text.txt").string(), "--tokenizer",
                 "bytes", "--sequence-length", "16", "--threads", "1", "--device", "cpu", "--quiet", "--json"});
    const auto result = nlohmann::json::parse(f.out, nullptr, false);
    return result.is_object() && result["loss"].is_number() ? result["loss"].get<double>() : NAN;
  }
  // Checks that the newest checkpoint is that of `step`, and that the model of every checkpoint has a finite loss.
  void expect_good(i64 step) const {
    ASSERT_FALSE(saved().empty());
    EXPECT_EQ(saved().back(), step);
    for (const i64 each : saved()) EXPECT_LT(loss_of(each), 6) << "the checkpoint of step " << each;
  }
};

void expect_all(const std::string& text, const Words& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(Diverging, KeepsWhatItSavedWhileTheLossWasFinite) {
  const Words words = flags({"--steps", "60", "--checkpoint-every", "5"});
  for (int start = 1; start <= 2; ++start) {
    const Outcome f = train(words);
    EXPECT_EQ(f.status, 7);
    expect_all(f.err, {"not finite in 20 steps in a row, the last at step 31",
                       "the last good checkpoint is " + checkpoint_path(run, 10).string() + ", and the same command goes on from it",
                       "--allow-change learning_rate"});
    if (start == 2) expect_all(f.err, {"continues at step 10 of 60 from the last checkpoint"});
    expect_good(10);
  }
  const Outcome lower = train(flags({"--steps", "60", "--checkpoint-every", "5", "--allow-change", "lr_gamma"}, "1"));
  EXPECT_EQ(lower.status, 0) << lower.err;
  expect_good(60);
}

// In the step that diverges the loss and all weights are still finite, so the step is saved. Its
// checkpoint is renamed to .not-finite once the next loss is not finite, and a restart does not use it.
TEST_F(Diverging, ACheckpointWhoseWeightsGiveNoFiniteLossIsNotGoneOnFrom) {
  const Words words = flags({"--steps", "60", "--checkpoint-every", "1", "--keep", "1"});
  const Outcome f = train(words);
  EXPECT_EQ(f.status, 7);
  expect_good(10);
  expect_all(f.err,
             {"the last good checkpoint is " + checkpoint_path(run, 10).string(), checkpoint_path(run, 11).string() + ".not-finite"});
  EXPECT_TRUE(fs::exists(checkpoint_path(run, 11).string() + ".not-finite/model.safetensors"));
  expect_all(train(words).err, {"continues at step 10 of 60"});
}

// The learning rate 1e-3 * 1e50 is beyond fp32, so an optimizer step with it makes infinite weights.
TEST_F(Diverging, WeightsThatAreNotFiniteAreNeverSaved) {
  const Outcome f = train(flags({"--steps", "60", "--checkpoint-every", "1", "--keep", "1"}, "1e50"));
  EXPECT_EQ(f.status, 7);
  expect_all(f.err, {"the checkpoint of step 11 was not saved: ", "expected finite weights, got some of transformer.",
                     "the last good checkpoint is " + checkpoint_path(run, 10).string()});
  expect_good(10);
  EXPECT_FALSE(fs::exists(checkpoint_path(run, 11).string() + ".not-finite"));
}

TEST_F(Diverging, AFinalSaveOfSuchWeightsIsRefused) {
  const Outcome f = train(flags({"--steps", "11", "--checkpoint-every", "5"}, "1e50"));
  EXPECT_EQ(f.status, 7);
  expect_all(f.err, {"step 11 was not saved: ", "the last good checkpoint is " + checkpoint_path(run, 10).string()});
  expect_good(10);
}

TEST_F(Diverging, TheLastStepIsNotSavedAfterALossThatIsNotFinite) {
  const Outcome f = train(flags({"--steps", "15", "--checkpoint-every", "5"}));
  EXPECT_EQ(f.status, 7);
  expect_all(f.err, {"the last step, 15, is not saved", "the checkpoint of step 10"});
  expect_good(10);
}

TEST_F(Diverging, AStopAfterSuchAStepSavesNothing) {
  Trainer training(train_settings(flags({"--steps", "60", "--checkpoint-every", "5"})));
  bool skipped = false;
  training.callbacks.on_step = [&](const StepEvent& e) { skipped |= e.skipped; };
  training.callbacks.wants_stop = [&] { return skipped; };
  std::string log;
  LineMessages lines([&](std::string_view line) { log += std::string(line) + "\n"; });
  const TrainingResult result = training.fit({}, lines);
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.checkpoint, checkpoint_path(run, 10));
  expect_all(log, {"not saved, because the loss or gradient norm", "the checkpoint of step 10"});
  expect_good(10);
}

// The newer state on nvme gives no finite loss, like the weights that diverged, so the restart uses the older checkpoint.
TEST_F(Diverging, AStateOnNvmeIsGivenUpForTheCheckpoint) {
  for (const char* durability : {"checkpoint", "step"}) {
    for (const std::string& old : {run, (folder.path() / "scratch").string()}) fs::remove_all(old);
    const Words words = flags({"--steps", "60", "--checkpoint-every", "5", "--device-memory", "16MiB", "--host-memory", "64MiB", "--nvme",
                               (folder.path() / "scratch").string(), "--place-parameters", "nvme", "--place-gradients", "nvme",
                               "--place-optimizer", "nvme", "--durability", durability});
    EXPECT_EQ(train(words).status, 7);
    const Outcome again = train(words);
    EXPECT_EQ(again.status, 7);
    expect_all(again.err, {"continues at step 10 of 60 from the last checkpoint", "step 31 is discarded"});
    expect_good(10);
  }
}

// fp16 begins with a loss scale at which the gradients overflow. The losses are finite, so checkpoints are saved.
TEST_F(Diverging, Fp16SavesWhileItLooksForItsScale) {
  const Outcome f = train(flags({"--steps", "4", "--checkpoint-every", "1", "--keep", "9", "--precision", "fp16"}, "1"));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(saved(), (std::vector<i64>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace spillway::app::diverging_test
