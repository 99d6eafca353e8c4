// Implements `spillway classify`, which predicts the classes of images with an image model,
// under the same budgets and placements as training. Data-parallel ranks share the images.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/commands/commands.h"
#include "app/ranks/rank_console.h"
#include "base/error.h"
#include "data/images/picture.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/ranks/rank_report.h"
#include "trainer/run/data_sources.h"
#include "trainer/run/inference.h"

namespace spillway::app {
namespace {

// Pictures reads image files whose class is unknown. The class 0 is returned for each, and means nothing.
class Pictures final : public data::ImageSource {
 public:
  Pictures(std::vector<std::string> files, data::ImageFormat format) : files_(std::move(files)), format_(std::move(format)) {}
  const std::string& name() const override { return files_.front(); }
  i64 images() const override { return std::ssize(files_); }
  const data::ImageFormat& format() const override { return format_; }
  i32 read(i64 image, std::span<u8> pixels_CHW) const override {
    data::fit(data::read_picture(files_[static_cast<size_t>(image)]), format_.shape_CHW, pixels_CHW);
    return 0;
  }

 private:
  const std::vector<std::string> files_;
  const data::ImageFormat format_;
};

struct Guess {
  size_t label;
  double probability;
};

// Returns the `top` classes by the softmax of the logits, the most likely first.
std::vector<Guess> guesses(std::span<const double> logits_K, i64 top) {
  const double largest = *std::ranges::max_element(logits_K);
  std::vector<Guess> all;
  double sum = 0;
  for (const double logit : logits_K) {
    all.push_back({all.size(), std::exp(logit - largest)});
    sum += all.back().probability;
  }
  for (Guess& guess : all) guess.probability /= sum;
  std::ranges::stable_sort(all, std::greater(), &Guess::probability);
  all.resize(std::min(all.size(), static_cast<size_t>(top)));
  return all;
}

std::string name_of(const models::ModelConfig& model, size_t label) {
  return model.class_names.empty() ? fmt::format("class {}", label) : model.class_names[label];
}

std::string text_of(const models::ModelConfig& model, const std::string& image, const std::vector<Guess>& found) {
  std::vector<std::string> words;
  for (const Guess& guess : found) words.push_back(fmt::format("{} {:.4f}", name_of(model, guess.label), guess.probability));
  return fmt::format("{}: {}", image, fmt::join(words, ", "));
}

std::string json_of(const models::ModelConfig& model, const std::string& image, const std::vector<Guess>& found) {
  nlohmann::ordered_json all = {{"image", image}, {"classes", nlohmann::ordered_json::array()}};
  for (const Guess& guess : found) {
    nlohmann::ordered_json one = {{"class", guess.label}};
    if (!model.class_names.empty()) one["name"] = model.class_names[guess.label];
    one["probability"] = guess.probability;
    all["classes"].push_back(one);
  }
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

int classify(const ClassifyConfig& config, Console& console, const Peers& peers) {
  constexpr i64 kMostAtOnce = 64;
  std::optional<Inference> model;
  std::optional<data::Loader> loader;
  std::vector<std::unique_ptr<data::ImageSource>> sources;
  Workload work{.mode = nn::Mode::evaluate};
  peers.together([&] {
    model.emplace(Command::classify, config, peers);
    const models::ModelConfig& of = model->source().config;
    if (!of.reads_images())
      throw Error(ErrorCode::usage, fmt::format("[classify] expected a model that reads images, got {}", model->source().name));
    work.sequence_length = of.positions;
    work.micro_batch_size = std::min(kMostAtOnce, ceil_div(std::ssize(config.images), i64{model->mesh().data}));
    sources.push_back(std::make_unique<Pictures>(config.images, images_read_by(of)));
    loader.emplace(data::images_of(sources, weight_dtype(*config.precision)),
                   data::LoaderOptions{.micro_batch_size = work.micro_batch_size,
                                       .rank = model->mesh().data_rank(peers.rank()),
                                       .ranks = model->mesh().data,
                                       .validation_fraction = 1});
  });
  model->open(config, {}, work, console);
  report_phase(RankPhase::evaluating);
  const models::ModelConfig& of = model->source().config;
  size_t done = 0;
  for (i64 round = 0; round < loader->validation_micro_batches(); ++round) {
    std::vector<double> logits;
    peers.together([&] {
      const StreamScope scope(model->rank().input_stream());
      logits = model->rank().logits(loader->validation(round), 0);
    });
    const std::vector<std::vector<double>> all = peers.gather(logits);
    for (int r = 0; r < model->mesh().data; ++r) {
      const std::vector<double>& rows = all[static_cast<size_t>(model->mesh().world_rank(r, 0))];
      const auto classes = static_cast<size_t>(of.vocabulary);
      for (size_t at = 0; at < rows.size() && done < config.images.size(); at += classes) {
        const std::string& image = config.images[done++];
        const std::vector<Guess> found = guesses(std::span(rows).subspan(at, classes), config.top);
        console.result(console.json() ? json_of(of, image, found) : text_of(of, image, found));
      }
    }
  }
  return 0;
}

}  // namespace

int run_classify(const ClassifyConfig& given, Console& console, const Peers& peers) {
  ClassifyConfig config = given;
  config.ranks = peers.ranks();
  resolve_device(config, look_at_gpus(config, peers.place().local_rank));
  return run_on_ranks(peers, console, [&](Console& own) { return classify(config, own, peers); });
}

}  // namespace spillway::app
