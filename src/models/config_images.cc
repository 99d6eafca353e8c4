#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "models/cifar_net.h"
#include "models/families/config_parts.h"
#include "models/feature_net.h"
#include "models/image_families.h"

namespace spillway::models {
namespace {

using nlohmann::json;

constexpr i64 kMaxSide = 16384, kMaxImageWidth = 65536, kMaxStages = 16;

const std::vector<i64> kTutorialWidths{6, 16, 120, 84};

struct ImageFamily {
  Family family;
  const char *type, *architecture;
  i64 least_side, side, channels, classes;  // `side`, `channels` and `classes` are the defaults for keys that config.json does not set
};

// The families of image models. transformers' own ResNet is not among them: it names
// its parameters differently from torchvision, so its `model_type` is not accepted.
constexpr ImageFamily kFamilies[] = {{Family::cifar_net, "cifar_net", "CifarNet", kLeastCifarNetSide, 32, 3, 10},
                                     {Family::lenet, "lenet", "LeNet", kLeastLenetSide, 28, 1, 10},
                                     {Family::alexnet, "alexnet", "AlexNet", kLeastAlexnetSide, 224, 3, 1000},
                                     {Family::vgg11, "vgg11", "VGG", kLeastVgg11Side, 224, 3, 1000},
                                     {Family::resnet, "torchvision_resnet", "ResNet", 1, 224, 3, 1000}};

const ImageFamily& about(Family family) { return *std::ranges::find(kFamilies, family, &ImageFamily::family); }

// Reads image_size: either [height, width] or one number for both.
Shape image_shape(const ConfigObject& object, i64 channels, const ImageFamily& family) {
  const json* sides = object.find("image_size");
  if (!sides || !sides->is_array()) {
    const i64 side = object.whole("image_size", family.least_side, kMaxSide, family.side);
    return {channels, side, side};
  }
  const std::string expected =
      fmt::format("a whole number from {} to {}, or a list of two such numbers: height, width", family.least_side, kMaxSide);
  if (sides->size() != 2) object.complain("image_size", expected);
  const json both = {{"height", (*sides)[0]}, {"width", (*sides)[1]}};
  const ConfigObject pair(both, object.file(), "image_size.");
  return {channels, pair.whole("height", family.least_side, kMaxSide), pair.whole("width", family.least_side, kMaxSide)};
}

// Reads the list of whole numbers under `key`. The list must have `least` to `most` numbers, each from 1 to `largest`.
std::vector<i64> numbers(const ConfigObject& object, const char* key, size_t least, size_t most, i64 largest) {
  const json* all = object.find(key);
  const std::string many = least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
  const std::string expected = fmt::format("a list of {} whole numbers from 1 to {}", many, largest);
  if (!all || !all->is_array() || all->size() < least || all->size() > most) object.complain(key, expected);
  std::vector<i64> values;
  for (const json& one : *all) {
    if (!one.is_number_integer() || one < 1 || one > largest) object.complain(key, expected);
    values.push_back(one.get<i64>());
  }
  return values;
}

ResNetConfig read_resnet(const ConfigObject& object) {
  ResNetConfig config;
  config.widths = numbers(object, "hidden_sizes", 1, kMaxStages, kMaxImageWidth);
  config.blocks = numbers(object, "depths", config.widths.size(), config.widths.size(), kMaxLayers / kMaxStages);
  const std::string type = object.text("layer_type", "basic");
  if (type != "basic" && type != "bottleneck") object.complain("layer_type", "basic or bottleneck");
  config.bottleneck = type == "bottleneck";
  config.large_stem = object.flag("large_stem", false);
  return config;
}

// Reads transformers' id2label, {"0": "airplane", ...}, which must name every class.
std::vector<std::string> class_names(const ConfigObject& object, i64 classes) {
  const json* names = object.find("id2label");
  if (!names) return {};
  const auto whole = fmt::format("an object with a name for each number from 0 to {}", classes - 1);
  if (!names->is_object() || std::ssize(*names) != classes) object.complain("id2label", whole);
  std::vector<std::string> all;
  const ConfigObject each(*names, object.file(), "id2label.");
  for (i64 k = 0; k < classes; ++k) {
    const std::string key = std::to_string(k);
    all.push_back(each.text(key.c_str()));
    if (std::ranges::any_of(all.back(), [](unsigned char c) { return c < ' ' || c == 127; }))
      each.complain(key, "a text without control characters");
  }
  return all;
}

}  // namespace

std::optional<Family> image_family(std::string_view type) {
  const auto* found = std::ranges::find(kFamilies, type, [](const ImageFamily& f) { return std::string_view(f.type); });
  return found == std::end(kFamilies) ? std::nullopt : std::optional(found->family);
}

std::string image_types() {
  std::string all;
  for (const ImageFamily& f : kFamilies) all += (all.empty() ? "" : ", ") + std::string(f.type);
  return all;
}

ModelConfig parse_image_model(Family family, const ConfigObject& object) {
  refuse_features(object);
  ModelConfig config;
  config.family = family;
  config.positions = 1;
  config.vocabulary = object.whole("num_labels", 1, kMaxVocabulary, about(family).classes);
  config.image_CHW = image_shape(object, object.whole("num_channels", 1, 3, about(family).channels), about(family));
  if (config.image_CHW[0] == 2) object.complain("num_channels", "1 (grey) or 3 (RGB)");
  config.class_names = class_names(object, config.vocabulary);
  if (family == Family::resnet) config.resnet = read_resnet(object);
  if (family == Family::cifar_net || family == Family::lenet)
    config.widths = object.find("hidden_sizes") ? numbers(object, "hidden_sizes", 4, 4, kMaxImageWidth) : kTutorialWidths;
  if (family == Family::alexnet || family == Family::vgg11) config.residual_dropout = object.share("dropout", 0.5);
  return config;
}

json image_model_json(const ModelConfig& c) {
  const i64 height = c.image_CHW[1], width = c.image_CHW[2];
  json root = {{"architectures", {about(c.family).architecture}},
               {"model_type", about(c.family).type},
               {"num_labels", c.vocabulary},
               {"num_channels", c.image_CHW[0]}};
  root["image_size"] = height == width ? json(height) : json({height, width});
  for (size_t k = 0; k < c.class_names.size(); ++k) {
    root["id2label"][std::to_string(k)] = c.class_names[k];
    root["label2id"][c.class_names[k]] = k;
  }
  if (c.family == Family::resnet) {
    root["hidden_sizes"] = c.resnet.widths;
    root["depths"] = c.resnet.blocks;
    root["layer_type"] = c.resnet.bottleneck ? "bottleneck" : "basic";
    root["large_stem"] = c.resnet.large_stem;
  }
  if (!c.widths.empty() && c.widths != kTutorialWidths) root["hidden_sizes"] = c.widths;
  if (c.family == Family::alexnet || c.family == Family::vgg11) root["dropout"] = c.residual_dropout;
  return root;
}

void check_image_side(const ModelConfig& c) {
  const ImageFamily& family = about(c.family);
  if (std::min(c.image_CHW[1], c.image_CHW[2]) >= family.least_side) return;
  std::string name = family.type;
  std::ranges::replace(name, '_', '-');
  throw Error(
      ErrorCode::usage,
      fmt::format("[{}] expected images of at least {} x {} pixels, got {} x {}: images in folders can be enlarged with --image-size", name,
                  family.least_side, family.least_side, c.image_CHW[1], c.image_CHW[2]));
}

}  // namespace spillway::models
