// Tests train --histograms-every with the whole program and on several ranks. The histograms in the
// event files match the weights in a checkpoint of the same step. They change no bit of the training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "data/safetensors/safetensors.h"
#include "tests/app/program/support_ranks.h"
#include "tests/trainer/events/support_events.h"
#include "trainer/checkpoints/checkpoint.h"

namespace spillway::app::weight_histograms_test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;

Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

struct WeightHistograms : testing::Test {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const std::string scratch = (folder.path() / "scratch").string();

  WeightHistograms() {
    std::string text;
    for (u32 i = 0, state = 1; i < 4000; ++i) text += static_cast<char>(' ' + (state = state * 1664525u + 1013904223u) / 65536 % 90);
    folder.write("text.txt", text);
  }
  Args flags(const std::string& model, i64 steps, const Args& more, const fs::path& out) const {
    return Args{"--model",
                model,
                "--data",
                (folder.path() / "text.txt").string(),
                "--sequence-length",
                "16",
                "--steps",
                std::to_string(steps),
                "--learning-rate",
                "1e-2",
                "--lr-schedule",
                "constant",
                "--warmup-steps",
                "0",
                "--threads",
                "2",
                "--device-memory",
                "64MiB",
                "--host-memory",
                "64MiB",
                "--out",
                out.string()} +
           more;
  }
  void train(i64 steps, const Args& more, const fs::path& out, int ranks = 1, const std::string& model = "gpt2-tiny") const {
    for (const Outcome& rank : train_on(ranks, flags(model, steps, more, out))) EXPECT_EQ(rank.status, 0) << rank.err;
  }
};

std::vector<i64> steps_of(const std::map<i64, ReadHistogram>& points) {
  std::vector<i64> steps;
  for (const auto& [step, histogram] : points) steps.push_back(step);
  return steps;
}

// Checks the histogram `got` against `values`, which the test read from a checkpoint and counts between the histogram's own limits.
void expect_of(const ReadHistogram& got, const std::vector<double>& values, const std::string& what) {
  ASSERT_EQ(got.bucket.size(), got.bucket_limit.size()) << what;
  ASSERT_FALSE(got.bucket.empty()) << what;
  std::vector<double> counts(got.bucket.size());
  double sum = 0, sizes = 0, squares = 0;
  for (const double value : values) {
    const auto above = std::ranges::upper_bound(got.bucket_limit, value);
    ASSERT_NE(above, got.bucket_limit.end()) << what << " " << value;
    ++counts[static_cast<size_t>(above - got.bucket_limit.begin())];
    sum += value, sizes += std::abs(value), squares += value * value;
  }
  EXPECT_EQ(got.bucket, counts) << what;
  EXPECT_EQ(got.num, static_cast<double>(values.size())) << what;
  EXPECT_EQ(got.min, *std::ranges::min_element(values)) << what;
  EXPECT_EQ(got.max, *std::ranges::max_element(values)) << what;
  // Each of n additions of the test may be off by 2^-53 of the sum of magnitudes. The histogram itself makes fewer additions.
  const double error = 0x1p-52 * static_cast<double>(values.size() + 510);
  EXPECT_NEAR(got.sum, sum, error * sizes) << what;
  EXPECT_NEAR(got.sum_squares, squares, error * squares) << what;
}

// Checks that a run has a histogram for each tensor of `file` for which `tag_of` returns a tag, and for no other tensor.
void expect_of_checkpoint(const fs::path& run, i64 step, const char* file, const std::function<std::string(const std::string&)>& tag_of) {
  const ReadHistograms all = histograms_in(run);
  const data::SafetensorsReader weights(checkpoint_path(run, step) / file);
  size_t expected = 0;
  for (const data::TensorInfo& tensor : weights.tensors()) {
    const std::string tag = tag_of(tensor.name);
    if (tag.empty()) continue;
    ++expected;
    ASSERT_TRUE(all.contains(tag) && all.at(tag).contains(step)) << tag << " of step " << step;
    std::vector<double> values(static_cast<size_t>(tensor.shape.elems()));
    weights.read_wide(tensor, 0, values);
    expect_of(all.at(tag).at(step), values, tag);
  }
  EXPECT_EQ(all.size(), expected) << "of what is not trained, or of nothing";
  EXPECT_GT(expected, 0u);
}

std::string tag_of(const std::string& name) { return "weights/" + name; }

TEST_F(WeightHistograms, AreOfTheWeightsThatACheckpointOfTheStepHolds) {
  for (const Args& more : {Args{}, Args{"--precision", "bf16"}, Args{"--freeze", "*.bias"}}) {
    SCOPED_TRACE(more.empty() ? "" : more[1]);
    train(5, Args{"--histograms-every", "2", "--checkpoint-every", "2", "--keep", "9"} + more, run);
    for (const auto& [tag, points] : histograms_in(run)) EXPECT_EQ(steps_of(points), (std::vector<i64>{2, 4})) << tag;
    const bool frozen = !more.empty() && more[0] == "--freeze";
    for (const i64 step : {2, 4}) {
      expect_of_checkpoint(run, step, "model.safetensors",
                           [&](const std::string& name) { return frozen && name.ends_with(".bias") ? "" : tag_of(name); });
    }
    fs::remove_all(run);
  }
}

TEST_F(WeightHistograms, OfAdaptersAreTheAdaptersAlone) {
  train(1, {}, run);
  const std::string base = (folder.path() / "base").string();
  ASSERT_EQ(run_app({"export", run.string(), "--out", base}).status, 0);
  const fs::path tuned = folder.path() / "tuned";
  train(2, {"--lora", "2", "--lora-targets", "c_attn", "--tokenizer", "bytes", "--histograms-every", "2"}, tuned, 1, base);
  expect_of_checkpoint(tuned, 2, "adapter_model.safetensors", [](const std::string& peft) {
    const std::string prefix = "base_model.model.";
    EXPECT_TRUE(peft.starts_with(prefix)) << peft;
    return tag_of(peft.substr(prefix.size()));
  });
}

// Histograms change no bit of a run, even if they force an optimizer step to be done early that was deferred to the next forward.
TEST_F(WeightHistograms, NoBitOfTheTrainingChangesByThem) {
  const fs::path other = folder.path() / "other";
  for (const Args& more : {Args{}, Args{"--optimizer-overlap", "forward", "--nvme", scratch, "--place-parameters", "nvme",
                                        "--place-gradients", "host", "--place-optimizer", "nvme"}}) {
    train(4, more, other);
    train(4, more + Args{"--histograms-every", "1"}, run);
    EXPECT_TRUE(histograms_in(other).empty());
    EXPECT_EQ(histograms_in(run).at("weights/transformer.wte.weight").size(), 4u);
    EXPECT_EQ(numbers_in(run), numbers_in(other));
    EXPECT_EQ(state_in(run, 4), state_in(other, 4));
    EXPECT_GT(state_in(run, 4).size(), 3'000'000u);
    for (const fs::path& one : {run, other}) fs::remove_all(one);
  }
  const auto hash = [&](const Args& more) {
    return numbers_hash(std::get<TrainConfig>(settings_of(Command::train, flags("gpt2-tiny", 4, more, run))));
  };
  EXPECT_EQ(hash({"--histograms-every", "3"}), hash({}));
}

// Histograms do not depend on tiers, ZeRO or pipeline stages. One rank with two micro-batches trains as two ranks with one each do.
TEST_F(WeightHistograms, AreTheSameWhereverWeightsLie) {
  struct Corner {
    int ranks;
    Args flags;
  };
  const Args nvme = {"--nvme", scratch, "--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme"};
  const std::vector<Corner> corners = {{1, nvme},
                                       {1, {"--optimizer-overlap", "backward", "--place-parameters", "host"}},
                                       {2, {"--zero-stage", "0"}},
                                       {2, {"--zero-stage", "1"}},
                                       {2, {"--zero-stage", "3"}},
                                       {2, nvme + Args{"--zero-stage", "3"}},
                                       {2, {"--pipeline-stages", "2"}},
                                       {2, nvme + Args{"--pipeline-stages", "2"}},
                                       {4, nvme + Args{"--zero-stage", "3", "--pipeline-stages", "2"}}};
  const Args all = {"--global-batch-size", "2", "--histograms-every", "1"};
  train(2, all, run);
  const ReadHistograms want = histograms_in(run);
  ASSERT_GT(want.size(), 20u);
  for (const auto& [tag, points] : want) ASSERT_EQ(steps_of(points), (std::vector<i64>{1, 2})) << tag;
  for (const Corner& corner : corners) {
    const fs::path other = folder.path() / "other";
    train(2, all + corner.flags, other, corner.ranks);
    EXPECT_EQ(numbers_in(other), numbers_in(run)) << corner.flags.back();
    EXPECT_TRUE(histograms_in(other) == want) << corner.ranks << " ranks, " << corner.flags.back();
    fs::remove_all(other);
  }
}

// Histograms are read as TensorBoard reads them: steps that are done again after a restart count once.
TEST_F(WeightHistograms, ArePartOfWhatGoesOn) {
  const fs::path other = folder.path() / "other";
  train(6, {"--histograms-every", "1"}, other);
  train(4, {"--histograms-every", "1", "--checkpoint-every", "2"}, run);
  fs::remove_all(checkpoint_path(run, 4));
  train(6, {"--histograms-every", "1"}, run);
  EXPECT_EQ(event_files(run).size(), 2u);
  EXPECT_TRUE(histograms_in(run) == histograms_in(other));
  EXPECT_EQ(nlohmann::json::parse(*read_whole(run / "config.json"))["histograms_every"], 1);
}

// Two weights of a position that no row reaches are set to NaN and infinity, which leaves the loss finite. Histograms count
// them, but such weights are never saved. The learning rate is 0, so the other weights are still those of the base model.
TEST_F(WeightHistograms, SayWhatIsNotFinite) {
  train(1, {}, run);
  const fs::path base = folder.path() / "base";
  ASSERT_EQ(run_app({"export", run.string(), "--out", base.string()}).status, 0);
  const fs::path file = base / "model.safetensors";
  {
    const data::SafetensorsReader weights(file);
    const data::TensorInfo& positions = *weights.find("transformer.wpe.weight");
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    u64 header = 0;
    bytes.read(reinterpret_cast<char*>(&header), sizeof header);
    bytes.seekp(static_cast<i64>(sizeof header + header) + positions.end - 2 * static_cast<i64>(sizeof(float)));
    const float values[] = {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()};
    bytes.write(reinterpret_cast<const char*>(values), sizeof values);
  }
  const fs::path tuned = folder.path() / "tuned";
  Args still = flags(base.string(), 2, {"--tokenizer", "bytes", "--histograms-every", "2", "--zero-stage", "3"}, tuned);
  *(std::ranges::find(still, "--learning-rate") + 1) = "0";
  const auto said = train_on(2, still);
  ASSERT_EQ(said[0].status, 7) << said[0].err;
  EXPECT_NE(said[0].err.find("2 weights are not finite after step 2, in 1 parameter (the first is transformer.wpe.weight)"),
            std::string::npos)
      << said[0].err;
  EXPECT_FALSE(fs::exists(checkpoint_path(tuned, 2)));
  const ReadHistograms all = histograms_in(tuned);
  const ReadHistogram& positions = all.at("weights/transformer.wpe.weight").at(2);
  const data::SafetensorsReader weights(file);
  std::vector<double> values(static_cast<size_t>(weights.find("transformer.wpe.weight")->shape.elems()));
  weights.read_wide(*weights.find("transformer.wpe.weight"), 0, values);
  EXPECT_EQ(std::erase_if(values, [](double value) { return !std::isfinite(value); }), 2u);
  expect_of(positions, values, "positions");
}

}  // namespace
}  // namespace spillway::app::weight_histograms_test
