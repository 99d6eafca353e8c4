#include "models/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/edit_distance.h"
#include "base/error.h"
#include "models/presets_decoders.h"
#include "models/resnet.h"

namespace spillway::models {
namespace {

constexpr std::array<std::string_view, 17> kOwn{"gpt2-tiny", "gpt2-124m", "gpt2-355m",  "gpt2-774m", "gpt2-1.5b", "llama-tiny",
                                                "llama3-1b", "llama3-8b", "llama3-70b", "cifar-net", "lenet",     "alexnet",
                                                "vgg11",     "resnet20",  "resnet18",   "resnet34",  "resnet50"};

const std::vector<std::string_view>& built() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all(kOwn.begin(), kOwn.end());
    all.insert(all.end(), decoder_preset_names().begin(), decoder_preset_names().end());
    return all;
  }();
  return names;
}

// Returns the configuration of one size of GPT-2 (Radford et al. 2019). The published vocabulary ends with <|endoftext|>, which serves as
// begin and end token.
ModelConfig gpt2(i64 layers, i64 width, i64 heads, i64 positions = 1024, i64 vocabulary = 50257) {
  ModelConfig c;
  c.family = Family::gpt2;
  c.layers = layers;
  c.width = width;
  c.heads = c.kv_heads = heads;
  c.head_dim = width / heads;
  c.mlp_width = 4 * width;
  c.positions = positions;
  c.vocabulary = vocabulary;
  if (vocabulary == 50257) {
    c.begin_token = 50256;
    c.end_tokens = {50256};
  }
  return c;
}

ModelConfig llama(i64 layers, i64 width, i64 heads, i64 kv_heads, i64 mlp_width) {
  ModelConfig c;
  c.family = Family::llama;
  c.layers = layers;
  c.width = width;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = width / heads;
  c.mlp_width = mlp_width;
  c.tied_head = false;
  return c;
}

ModelConfig llama_tiny() {
  ModelConfig c = llama(4, 128, 4, 2, 352);
  c.positions = c.vocabulary = 256;
  return c;
}

// Returns the configuration of one size of Llama 3, after Grattafiori et al. 2024 (arXiv:2407.21783) and the model cards of Llama 3.1 and
// 3.2.
ModelConfig llama3(i64 layers, i64 width, i64 heads, i64 mlp_width, double rope_factor) {
  ModelConfig c = llama(layers, width, heads, 8, mlp_width);
  c.positions = 131072;
  c.vocabulary = 128256;
  c.rope_theta = 500000;
  c.rope_scaling = RopeScaling{rope_factor, 1, 4, 8192};
  c.begin_token = 128000;
  c.end_tokens = {128001};
  return c;
}

ModelConfig llama3_1b() {
  ModelConfig c = llama3(16, 2048, 32, 8192, 32);
  c.tied_head = true;
  return c;
}

ModelConfig image_model(Family family, i64 classes, const Shape& image_CHW) {
  ModelConfig c;
  c.family = family;
  c.positions = 1;
  c.vocabulary = classes;
  c.image_CHW = image_CHW;
  return c;
}

// Returns the network of PyTorch's tutorial "Training a Classifier", or LeNet-5 (cifar_net.h).
ModelConfig small_net(Family family, const Shape& image_CHW, std::vector<i64> widths) {
  ModelConfig c = image_model(family, 10, image_CHW);
  c.widths = std::move(widths);
  return c;
}

ModelConfig resnet(const ResNetConfig& shape, i64 classes = 1000, i64 side = 224) {
  ModelConfig c = image_model(Family::resnet, classes, {3, side, side});
  c.resnet = shape;
  return c;
}

// Returns a preset for images. The number of classes and the image size are later set from the data set.
std::optional<ModelConfig> image_preset(std::string_view name) {
  if (name == "cifar-net") return small_net(Family::cifar_net, {3, 32, 32}, {6, 16, 120, 84});
  if (name == "lenet") return small_net(Family::lenet, {1, 28, 28}, {6, 16, 120, 84});
  if (name == "alexnet") return image_model(Family::alexnet, 1000, {3, 224, 224});
  if (name == "vgg11") return image_model(Family::vgg11, 1000, {3, 224, 224});
  if (name == "resnet20") return resnet(resnet20(), 10, 32);
  if (name == "resnet18") return resnet(resnet18());
  if (name == "resnet34") return resnet(resnet34());
  if (name == "resnet50") return resnet(resnet50());
  return {};
}

bool among(std::span<const std::string_view> names, std::string_view name) { return std::ranges::find(names, name) != names.end(); }

constexpr size_t kMostLetters = 60;  // of a name in a message; no preset's name is longer

// Maps names on the Hugging Face Hub to presets of the same shape.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kHubNames{{{"gpt2", "gpt2-124m"},
                                                                                  {"gpt2-small", "gpt2-124m"},
                                                                                  {"gpt2-medium", "gpt2-355m"},
                                                                                  {"gpt2-large", "gpt2-774m"},
                                                                                  {"gpt2-xl", "gpt2-1.5b"},
                                                                                  {"llama-3.2-1b", "llama3-1b"},
                                                                                  {"llama-3.1-8b", "llama3-8b"},
                                                                                  {"llama-3.1-70b", "llama3-70b"}}};

[[noreturn]] void refuse(std::string_view name) {
  const std::vector<std::string> near = nearest_presets(name);
  throw Error(ErrorCode::usage, fmt::format("[preset] expected one of {}, got `{}`{}", fmt::join(built(), ", "),
                                            name.substr(0, kMostLetters), near.empty() ? "" : "; did you mean " + either_of(near) + "?"));
}

}  // namespace

bool is_preset(std::string_view name) { return among(built(), name); }

std::vector<std::string> nearest_presets(std::string_view name) {
  const auto* const same = std::ranges::find(kHubNames, name, &std::pair<std::string_view, std::string_view>::first);
  if (same != kHubNames.end()) return {std::string(same->second)};
  return nearest_words(name.substr(0, kMostLetters), {built().begin(), built().end()});
}

std::span<const std::string_view> preset_names() { return built(); }

ModelConfig preset(std::string_view name) {
  if (name == "gpt2-tiny") return gpt2(4, 128, 4, 256, 256);
  if (name == "gpt2-124m") return gpt2(12, 768, 12);
  if (name == "gpt2-355m") return gpt2(24, 1024, 16);
  if (name == "gpt2-774m") return gpt2(36, 1280, 20);
  if (name == "gpt2-1.5b") return gpt2(48, 1600, 25);
  if (name == "llama-tiny") return llama_tiny();
  if (name == "llama3-1b") return llama3_1b();
  if (name == "llama3-8b") return llama3(32, 4096, 32, 14336, 8);
  if (name == "llama3-70b") return llama3(80, 8192, 64, 28672, 8);
  if (const auto images = image_preset(name)) return *images;
  if (const auto decoder = decoder_preset(name)) return *decoder;
  refuse(name.substr(0, 60));
}

}  // namespace spillway::models
