// Tests training on images other than CIFAR-10 with the whole program: image shape and classes follow the data and are saved in the
// checkpoint. Augmentation and any number of loader threads give bitwise reproducible results.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/app/support_app.h"
#include "tests/data/images/support_images.h"

namespace spillway::app::image_data_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class ImageData : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome train(const std::string& out, const Words& more) const {
    Words args = {"train", "--model", "cifar-net", "--device", "cpu", "--threads", "1", "--out", path(out), "--warmup-steps", "0"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = run_app(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  }
  Json evaluate(const std::string& run, const std::string& data) const {
    const Outcome outcome = run_app({"evaluate", "--model", path(run), "--data", path(data), "--json", "--device", "cpu"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? Json::parse(outcome.out) : Json();
  }
  Json config(const std::string& checkpoint) const { return Json::parse(test::bytes_of(path(checkpoint + "/config.json"))); }
  // Returns the loss and gradient norm of each step, as the trainer wrote them.
  std::vector<std::pair<Json, Json>> steps(const std::string& run) const {
    std::ifstream file(path(run + "/metrics.jsonl"));
    std::vector<std::pair<Json, Json>> all;
    for (std::string line; std::getline(file, line);) all.emplace_back(Json::parse(line)["loss"], Json::parse(line)["grad_norm"]);
    return all;
  }
  void write_idx(const std::string& at, u32 count, u32 rows, u32 columns, const std::string& name) const {
    folder_.write(at + "/" + name + "-images-idx3-ubyte.gz", data::gzipped(data::idx_images(count, rows, columns)));
    folder_.write(at + "/" + name + "-labels-idx1-ubyte.gz", data::gzipped(data::idx_labels(count)));
  }
  void picture(const std::string& to, const std::string& of) const { folder_.write(to, data::picture_bytes(of)); }
  const TemporaryFolder folder_;
};

TEST_F(ImageData, IdxFilesGiveOneChannelAndTheirSize) {
  write_idx("idx", 60, 20, 28, "train");
  write_idx("idx", 7, 20, 28, "t10k");
  const Outcome outcome =
      train("run", {"--data", path("idx"), "--validation-data", path("idx"), "--steps", "2", "--micro-batch-size", "4"});
  EXPECT_NE(outcome.out.find(", accuracy "), std::string::npos) << outcome.out;
  const Json said = config("run/checkpoints/step-00000002");
  EXPECT_EQ(said["num_channels"], 1);
  EXPECT_EQ(said["image_size"], Json::array({20, 28}));
  EXPECT_EQ(said["num_labels"], 10);
  EXPECT_FALSE(said.contains("id2label"));
  EXPECT_EQ(evaluate("run", "idx")["images"], 7);
  write_idx("other", 7, 28, 28, "t10k");
  const Outcome other = run_app({"evaluate", "--model", path("run"), "--data", path("other"), "--device", "cpu"});
  EXPECT_TRUE(other.status == 4 &&
              other.err.find("[1, 20, 28] in 10 classes, as the model reads, got shape [1, 28, 28]") != std::string::npos)
      << other.err;
  // A checkpoint can be trained on like any model folder. Its image size is fixed, so --image-size is refused.
  const Outcome again = run_app({"train", "--model", path("run/checkpoints/step-00000002"), "--data", path("idx"), "--steps", "1", "--out",
                                 path("again"), "--device", "cpu", "--micro-batch-size", "4"});
  EXPECT_EQ(again.status, 0) << again.err;
  const Outcome size = run_app({"train", "--model", path("run/checkpoints/step-00000002"), "--data", path("idx"), "--image-size", "32",
                                "--out", path("no"), "--device", "cpu"});
  EXPECT_TRUE(size.status == 2 &&
              size.err.find("[--image-size] expected this flag to be left out, because the config.json of step-00000002") !=
                  std::string::npos)
      << size.err;
  const Words words_of_plan{"plan", "--model", "cifar-net", "--data", path("idx"), "--device", "cpu", "--json", "--micro-batch-size"};
  const auto plan_of = [&](const char* batch) {
    Words words = words_of_plan;
    words.push_back(batch);
    return run_app(words);
  };
  const Outcome plan = plan_of("25");
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(Json::parse(plan.out)["steps"], 2) << "the 10 left over of 60 are dropped";
  const Outcome large = plan_of("64");
  EXPECT_TRUE(large.status == 2 && large.err.find("expected at most 60 rows per step, which is one epoch, got 64") != std::string::npos)
      << large.err;
  const Json planned = Json::parse(plan.out);
  int seen = 0;
  for (const Json& row : planned["rows"]) {
    if (row["what"] != "images") continue;
    EXPECT_GE(row["bytes"]["device"], 25 * (20 * 28 + 1) * 4) << "25 images and their classes";
    EXPECT_LT(row["bytes"]["device"], 25 * (20 * 28 + 1) * 4 + 2 * 4096);
    ++seen;
  }
  EXPECT_EQ(seen, 1) << plan.out;
}

TEST_F(ImageData, FoldersGiveNamesOfClasses) {
  picture("shop/shirt/1.png", "rgb.png");
  picture("shop/shirt/2.jpg", "rgb.jpg");
  picture("shop/shoe \"x\"/1.png", "wide.png");
  picture("shop/shoe \"x\"/2.png", "grey.png");
  picture("held/shirt/1.png", "palette.png");
  picture("held/shoe \"x\"/1.png", "wide.png");
  train("run",
        {"--data", path("shop"), "--validation-data", path("held"), "--image-size", "24", "--steps", "2", "--micro-batch-size", "2"});
  const Json said = config("run/checkpoints/step-00000002");
  EXPECT_EQ(said["image_size"], 24);
  EXPECT_EQ(said["id2label"], (Json{{"0", "shirt"}, {"1", "shoe \"x\""}}));
  EXPECT_EQ(said["label2id"], (Json{{"shirt", 0}, {"shoe \"x\"", 1}}));
  EXPECT_EQ(evaluate("run", "held")["images"], 2);
  picture("swapped/another/1.png", "rgb.png");
  const Outcome other = run_app({"evaluate", "--model", path("run"), "--data", path("swapped"), "--device", "cpu"});
  EXPECT_TRUE(other.status == 4 && other.err.find("index 0 is shirt there") != std::string::npos) << other.err;
  const Outcome small =
      run_app({"train", "--model", "cifar-net", "--data", path("shop"), "--out", path("no"), "--device", "cpu", "--micro-batch-size", "2"});
  EXPECT_TRUE(small.status == 2 && small.err.find("expected images of at least 16 x 16 pixels, got 9 x 13") != std::string::npos)
      << small.err;
  folder_.write("shop/shirt/3.png", data::picture_bytes("rgb.png").substr(0, 300));
  const Outcome damaged = run_app({"train", "--model", "cifar-net", "--data", path("shop"), "--image-size", "24", "--out", path("damaged"),
                                   "--device", "cpu", "--micro-batch-size", "2"});
  EXPECT_TRUE(damaged.status == 4 && damaged.err.find("shirt/3.png: expected a PNG image, got damage") != std::string::npos) << damaged.err;
}

TEST_F(ImageData, ClassifySaysWhatEvaluateCounts) {
  for (const char* name : {"rgb", "palette", "rgba", "wide"})
    picture(std::string("shop/colour/") + name + ".png", std::string(name) + ".png");
  for (const char* name : {"grey.png", "grey.jpg"}) picture(std::string("shop/grey/") + name, name);
  train("run", {"--data", path("shop"), "--image-size", "16", "--steps", "8", "--micro-batch-size", "6", "--learning-rate", "1e-3"});
  const Words images = {path("shop/grey/grey.jpg"),   path("shop/grey/grey.png"),      path("shop/colour/rgb.png"),
                        path("shop/colour/wide.png"), path("shop/colour/palette.png"), path("shop/colour/rgba.png")};
  const auto classify = [&](Words more) {
    more.insert(more.begin(), {"classify", "--model", path("run"), "--device", "cpu", "--threads", "1"});
    more.insert(more.end(), images.begin(), images.end());
    return run_app(more);
  };
  const Outcome outcome = classify({"--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  double right = 0, loss = 0;
  size_t at = 0;
  for (std::string line; std::getline(lines, line); ++at) {
    const Json said = Json::parse(line);
    ASSERT_LT(at, images.size());
    EXPECT_EQ(said["image"], images[at]);
    ASSERT_EQ(said["classes"].size(), 2u);
    EXPECT_GE(said["classes"][0]["probability"], said["classes"][1]["probability"]);
    EXPECT_NEAR(said["classes"][0]["probability"].get<double>() + said["classes"][1]["probability"].get<double>(), 1, 1e-12);
    const char* name = at < 2 ? "grey" : "colour";
    right += said["classes"][0]["name"] == name;
    for (const Json& one : said["classes"]) loss -= one["name"] == name ? std::log(one["probability"].get<double>()) / 6 : 0;
  }
  EXPECT_EQ(at, images.size());
  const Json evaluated = evaluate("run", "shop");
  EXPECT_NEAR(evaluated["accuracy"], right / 6, 1e-12);
  EXPECT_NEAR(evaluated["loss"], loss, 1e-5) << "sums of fp32";
  EXPECT_EQ(evaluated["top_5_accuracy"], 1) << "of two classes";
  EXPECT_EQ(classify({"--json", "--ranks", "2", "--communicator", "local"}).out, outcome.out);
  EXPECT_EQ(classify({"--json", "--ranks", "2", "--pipeline-stages", "2", "--communicator", "local"}).out, outcome.out);
  const std::string text = classify({"--top", "1"}).out;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
  EXPECT_NE(text.find("/grey.jpg: "), std::string::npos) << text;
  EXPECT_EQ(text.find(", "), std::string::npos) << text;
  const auto refused = [](const Words& args, int status, const std::string& says) {
    const Outcome got = run_app(args);
    EXPECT_TRUE(got.status == status && got.err.find(says) != std::string::npos) << got.status << got.err;
  };
  refused({"classify", "--model", path("run"), folder_.write("x.png", "x"), "--device", "cpu"}, 4, "x.png: expected a PNG or JPEG image");
  refused({"classify", "--model", path("run"), path("none.png"), "--device", "cpu"}, 4, "none.png");
  refused({"classify", "--model", path("run"), "--device", "cpu"}, 2, "[IMAGE] expected");
  refused({"classify", "--model", "cifar-net", path("x.png"), "--device", "cpu"}, 2, "cifar-net has no weights");
}

TEST_F(ImageData, ChangedImagesAndWorkersLeaveTheBits) {
  write_idx("idx", 50, 20, 20, "train");
  const auto run = [&](const std::string& out, const std::string& steps, Words more) {
    const Words given = {"--data", path("idx"),     "--augment", "crop-flip",           "--steps",
                         steps,    "--lr-schedule", "constant",  "--global-batch-size", "16"};
    more.insert(more.begin(), given.begin(), given.end());
    train(out, more);
  };
  run("one", "6", {"--micro-batch-size", "8", "--workers", "1"});
  run("many", "6", {"--micro-batch-size", "8", "--workers", "5"});
  run("recomputed", "6", {"--micro-batch-size", "8", "--recompute", "block"});
  EXPECT_EQ(steps("many"), steps("one"));
  EXPECT_EQ(steps("recomputed"), steps("one"));
  run("resumed", "3", {"--micro-batch-size", "8"});
  run("resumed", "6", {"--micro-batch-size", "8", "--workers", "2"});
  EXPECT_EQ(steps("resumed"), steps("one"));
  // Two ranks add the gradients in another order than one rank, so losses are only nearly equal.
  run("ranks", "6", {"--micro-batch-size", "8", "--ranks", "2", "--communicator", "local"});
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(steps("ranks")[i].first, steps("one")[i].first, 1e-5);
  const Words plain = {"--data", path("idx"),          "--steps", "1", "--lr-schedule", "constant", "--global-batch-size",
                       "16",     "--micro-batch-size", "8"};
  train("plain", plain);
  EXPECT_NE(steps("plain")[0], steps("one")[0]) << "they are changed";
}

}  // namespace
}  // namespace spillway::app::image_data_test
