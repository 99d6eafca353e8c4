#include <fmt/format.h>

#include <algorithm>

#include "models/cifar_net.h"
#include "models/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

constexpr i64 kMaxSide = 16384;

// [height, width], or one number that is both.
Shape image_shape(const ConfigObject& object, i64 channels) {
  const json* sides = object.find("image_size");
  if (!sides || !sides->is_array()) {
    const i64 side = object.whole("image_size", kLeastCifarNetSide, kMaxSide, 32);
    return {channels, side, side};
  }
  const std::string expected = fmt::format("a whole number from {} to {}, or two, height and width", kLeastCifarNetSide, kMaxSide);
  if (sides->size() != 2) object.complain("image_size", expected);
  const json both = {{"height", (*sides)[0]}, {"width", (*sides)[1]}};
  const ConfigObject pair(both, object.file(), "image_size.");
  return {channels, pair.whole("height", kLeastCifarNetSide, kMaxSide), pair.whole("width", kLeastCifarNetSide, kMaxSide)};
}

// transformers' id2label: {"0": "airplane", ...}, of every class.
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

ModelConfig parse_cifar_net(const ConfigObject& object) {
  refuse_features(object);
  ModelConfig config;
  config.family = Family::cifar_net;
  config.positions = 1;
  config.vocabulary = object.whole("num_labels", 1, kMaxVocabulary, 10);
  config.image_CHW = image_shape(object, object.whole("num_channels", 1, 3, 3));
  if (config.image_CHW[0] == 2) object.complain("num_channels", "1 (grey) or 3 (RGB)");
  config.class_names = class_names(object, config.vocabulary);
  return config;
}

json cifar_net_json(const ModelConfig& c) {
  const i64 height = c.image_CHW[1], width = c.image_CHW[2];
  json root = {
      {"architectures", {"CifarNet"}}, {"model_type", "cifar_net"}, {"num_labels", c.vocabulary}, {"num_channels", c.image_CHW[0]}};
  root["image_size"] = height == width ? json(height) : json({height, width});
  for (size_t k = 0; k < c.class_names.size(); ++k) {
    root["id2label"][std::to_string(k)] = c.class_names[k];
    root["label2id"][c.class_names[k]] = k;
  }
  return root;
}

}  // namespace spillway::models
