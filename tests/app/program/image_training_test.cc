// Trains cifar-net with the whole program: the model learns, the program reports how many images it classifies correctly, and the results
// are bitwise the same in whichever tiers its tensors lie.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "tests/app/support_app.h"

namespace spillway::app::image_training_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

// Returns images that show their class: each class has its own brightness in each of three parts of the image, under noise.
std::string images(int count, u64 seed) {
  const RandomKey key{seed};
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const int label = i % 10;
    bytes += static_cast<char>(label);
    for (int p = 0; p < 3072; ++p) {
      const int part = (p / 512) % 3, bright = (label * (7 + 11 * part)) % 10 * 20;
      const auto noise = static_cast<int>(key.derive("pixel", static_cast<u64>(i * 3072 + p)).value % 56);
      bytes += static_cast<char>(bright + noise);
    }
  }
  return bytes;
}

class ImageTraining : public testing::Test {
 protected:
  ImageTraining() {
    folder_.write("cifar/data_batch_1.bin", images(120, 1));
    folder_.write("cifar/data_batch_2.bin", images(40, 2));
    folder_.write("cifar/test_batch.bin", images(50, 3));
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome train(const std::string& out, int steps, Words more = {}, const std::string& model = "cifar-net") const {
    const Words args = {"train",
                        "--model",
                        model,
                        "--data",
                        path("cifar"),
                        "--validation-data",
                        path("cifar"),
                        "--steps",
                        std::to_string(steps),
                        "--threads",
                        "1",
                        "--out",
                        path(out),
                        "--learning-rate",
                        "3e-3",
                        "--warmup-steps",
                        "0",
                        "--lr-schedule",
                        "constant",
                        "--nvme",
                        path("scratch"),
                        "--device",
                        "cpu"};
    more.insert(more.begin(), args.begin(), args.end());
    return run_app(more);
  }
  std::vector<Json> metrics(const std::string& out) const {
    std::ifstream file(path(out) + "/metrics.jsonl");
    std::vector<Json> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
    return rows;
  }
  std::string bytes(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const TemporaryFolder folder_;
};

TEST_F(ImageTraining, LearnsAndSaysWhatItNamesRight) {
  const Outcome outcome = train("run", 30, {"--micro-batch-size", "16", "--validate-every", "10"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(" images/s"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find(", accuracy "), std::string::npos) << outcome.out;
  const std::vector<Json> rows = metrics("run");
  ASSERT_EQ(rows.size(), 30u);
  EXPECT_NEAR(rows[0]["loss"], std::log(10.0), 0.2);
  EXPECT_EQ(rows[0]["samples"], 16);
  EXPECT_EQ(rows[0]["tokens"], 16);
  EXPECT_FALSE(rows[0].contains("validation_accuracy"));
  EXPECT_GT(rows[29]["validation_accuracy"], 0.5) << "one in ten by chance";
  EXPECT_LT(rows[29]["validation_loss"], 1.5);
  // A checkpoint of cifar-net has PyTorch's names and shapes. evaluate takes the data folder's test images, as validation in training did.
  const Outcome evaluated = run_app({"evaluate", "--model", path("run"), "--data", path("cifar"), "--json", "--device", "cpu"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  const Json said = Json::parse(evaluated.out);
  EXPECT_EQ(said["accuracy"], rows[29]["validation_accuracy"]);
  EXPECT_NEAR(said["loss"], rows[29]["validation_loss"], 1e-6) << "of other micro-batches";
  EXPECT_EQ(said["images"], 50);
  const Outcome exported = run_app({"export", path("run"), "--out", path("exported")});
  EXPECT_EQ(exported.status, 0) << exported.err;
  EXPECT_NE(bytes("exported/model.safetensors").find("conv1.weight"), std::string::npos);
  const Outcome text = run_app({"generate", "--model", path("run"), "--prompt", "a", "--device", "cpu"});
  EXPECT_TRUE(text.status == 2 && text.err.find("expected a language model") != std::string::npos) << text.err;
}

TEST_F(ImageTraining, TheSameBitsWhereverItsBytesLie) {
  const Words small = {"--micro-batch-size", "8", "--gradient-accumulation-steps", "2", "--precision", "bf16", "--validation-steps", "2"};
  const auto run = [&](const std::string& out, Words more) {
    more.insert(more.begin(), small.begin(), small.end());
    const Outcome outcome = train(out, 3, more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  };
  const auto places = [](const std::string& tier) {
    return Words{"--place-parameters", tier, "--place-gradients", tier, "--place-optimizer", tier, "--place-activations", tier};
  };
  const auto with = [](Words all, const Words& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Words budgets = {"--device-memory", "64MiB", "--host-memory", "64MiB"};
  run("device", places("device"));
  run("host", with(with(places("host"), budgets), {"--recompute", "none"}));
  run("nvme", with(with(places("nvme"), budgets), {"--recompute", "none", "--optimizer-overlap", "forward"}));
  run("recomputed", {"--recompute", "block", "--pipeline-schedule", "vertical"});
  run("stages", {"--ranks", "2", "--communicator", "local", "--pipeline-stages", "2", "--pipeline-schedule", "1f1b"});
  run("zero-0", {"--ranks", "2", "--communicator", "local", "--zero-stage", "0"});
  run("zero-3",
      with(with(places("nvme"), budgets), {"--ranks", "2", "--communicator", "local", "--zero-stage", "3", "--recompute", "none"}));
  const auto same = [&](const std::string& got, const std::string& want) {
    const std::vector<Json> rows = metrics(got), wanted = metrics(want);
    ASSERT_EQ(rows.size(), 3u) << got;
    for (size_t i = 0; i < 3; ++i) {
      for (const char* key : {"loss", "grad_norm"}) EXPECT_EQ(rows[i][key], wanted[i][key]) << got << " " << key;
    }
    for (const char* key : {"validation_loss", "validation_accuracy"}) EXPECT_EQ(rows[2][key], wanted[2][key]) << got << " " << key;
    for (const char* file : {"/checkpoints/step-00000003/model.safetensors", "/checkpoints/step-00000003/optimizer.safetensors"}) {
      EXPECT_GT(bytes(want + file).size(), 100'000u);
      EXPECT_TRUE(bytes(got + file) == bytes(want + file)) << got << file;
    }
  };
  for (const char* got : {"host", "nvme", "recomputed", "stages"}) same(got, "device");
  same("zero-3", "zero-0");
  EXPECT_NE(metrics("zero-0")[0]["loss"], metrics("device")[0]["loss"]) << "twice the images a step";
}

using ImageTrainingRelease = ImageTraining;

// The bitwise comparison includes batch norm's running statistics, which a restart reads from the checkpoint.
TEST_F(ImageTrainingRelease, ResNet20GivesTheSameBitsAndIsReadAgain) {
  const Words small = {"--micro-batch-size", "4", "--gradient-accumulation-steps", "2", "--validation-steps", "2"};
  const auto run = [&](const std::string& out, int steps, Words more) {
    more.insert(more.begin(), small.begin(), small.end());
    const Outcome outcome = train(out, steps, more, "resnet20");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  };
  run("device", 3, {});
  run("nvme", 3,
      {"--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme", "--recompute", "block", "--device-memory",
       "64MiB", "--host-memory", "64MiB"});
  run("stages", 3, {"--ranks", "2", "--communicator", "local", "--pipeline-stages", "2", "--pipeline-schedule", "1f1b"});
  run("again", 2, {});
  run("again", 3, {});
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string want = bytes(std::string("device/checkpoints/step-00000003/") + file);
    EXPECT_GT(want.size(), 1'000'000u);
    for (const char* got : {"nvme", "stages", "again"})
      EXPECT_TRUE(bytes(std::string(got) + "/checkpoints/step-00000003/" + file) == want) << got << " " << file;
  }
  EXPECT_EQ(bytes("device/checkpoints/step-00000003/optimizer.safetensors").find("running_mean"), std::string::npos)
      << "they have no state";
  const Outcome evaluated = run_app({"evaluate", "--model", path("nvme"), "--data", path("cifar"), "--json", "--device", "cpu"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  const Json said = Json::parse(evaluated.out);
  EXPECT_EQ(said["images"], 50);
  EXPECT_GE(said["top_5_accuracy"], said["accuracy"]);
  const Outcome classified = run_app({"classify", "--model", path("stages"), SPILLWAY_TEST_DATA "/pictures/rgb.png", "--device", "cpu"});
  EXPECT_EQ(classified.status, 0) << classified.err;
  EXPECT_NE(classified.out.find("class "), std::string::npos) << classified.out;
}

TEST_F(ImageTraining, ImagesTooSmallForAModelAreRefused) {
  const Outcome outcome = train("no", 1, {}, "alexnet");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("[alexnet] expected images of at least 63 x 63 pixels, got 32 x 32"), std::string::npos) << outcome.err;
}

TEST_F(ImageTraining, WhatImagesHaveNoUseForIsRefused) {
  const auto refused = [&](const Words& more, const std::string& says) {
    const Outcome outcome = train("no", 1, more);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(path("no")));
  };
  refused({"--sequence-length", "32"}, "[--sequence-length] expected this flag to be left out, because cifar-net reads images, got 32");
  refused({"--tokenizer", "bytes"}, "[--tokenizer] expected this flag to be left out, because cifar-net");
  refused({"--dropout", "0.1"}, "[--dropout] expected this flag to be left out, because cifar-net");
  refused({"--sample-every", "1"}, "[--sample-every] expected this flag to be left out, because cifar-net");
  refused({"--global-batch-size", "96"}, "expected a multiple of 64 (--micro-batch-size 64");
  refused({"--data", folder_.write("t.txt", "text")}, "expected CIFAR-10's or CIFAR-100's binary version");
  refused({"--image-size", "0"}, "[--image-size] expected a value in [1, 16384]");
  const Outcome flag =
      run_app({"train", "--model", "gpt2-tiny", "--data", folder_.write("t.txt", "text"), "--augment", "crop-flip", "--out", path("no")});
  EXPECT_TRUE(flag.status == 2 &&
              flag.err.find("[--augment] expected this flag to be left out, because gpt2-tiny reads text") != std::string::npos)
      << flag.err;
  const Outcome text = run_app({"train", "--model", "gpt2-tiny", "--data", path("cifar"), "--out", path("no")});
  EXPECT_TRUE(text.status == 2 && text.err.find("expected .txt files in the folder") != std::string::npos) << text.err;
}

}  // namespace
}  // namespace spillway::app::image_training_test
