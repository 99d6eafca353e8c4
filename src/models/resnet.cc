#include "models/resnet.h"

#include <cmath>

#include "models/image_parts.h"
#include "nn/image_layers.h"
#include "ops/elementwise/elementwise.h"

namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

constexpr i64 kWidening = 4;  // the factor by which a bottleneck's last convolution is wider than its others

nn::Conv2d convolution_of(const std::string& name, const ConvShape& shape, i64 inputs, Extent& image, DType dtype) {
  return convolution(name, shape, inputs, image, dtype, {.bias = false, .std = std_by_outputs(shape)});
}

// A convolution and its norm, with torchvision's names. The constructor updates `image` to the size of the norm's output.
class ConvNorm {
 public:
  ConvNorm(const std::string& conv, const std::string& norm, i64 inputs, i64 outputs, i64 kernel, i64 stride, Extent& image, DType dtype)
      : conv_(convolution_of(conv, {outputs, kernel, stride, kernel / 2}, inputs, image, dtype)), norm_(norm, outputs, dtype) {}
  Variable operator()(const Variable& x, const Context& context) const { return norm_(conv_(x, context), context); }
  void list(nn::ParameterList& parameters) const {
    conv_.list(parameters);
    norm_.list(parameters);
  }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
};

class Stem final : public nn::Module {
 public:
  Stem(const ResNetConfig& c, i64 channels, Extent& image, DType dtype)
      : first_("conv1", "bn1", channels, c.widths.front(), c.large_stem ? 7 : 3, c.large_stem ? 2 : 1, image, dtype), pools_(c.large_stem) {
    if (pools_) image = image.behind(3, 2, 1);
  }

  Variable forward(const Variable&, const Context& context) const override {
    const Variable x = ops::relu(first_(context.batch->images_NCHW, context));
    return pools_ ? pool_(x, context) : x;
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(first_); }

 private:
  ConvNorm first_;
  bool pools_;
  nn::MaxPool2d pool_{3, 2, 1};
};

class ResidualBlock final : public nn::Module {
 public:
  ResidualBlock(const std::string& name, bool bottleneck, i64 inputs, i64 width, i64 stride, Extent& image, DType dtype) {
    const i64 outputs = bottleneck ? kWidening * width : width;
    const Extent before = image;
    const auto add = [&](i64 from, i64 to, i64 kernel, i64 by) {
      const std::string number = std::to_string(inner_.size() + 1);
      inner_.emplace_back(name + ".conv" + number, name + ".bn" + number, from, to, kernel, by, image, dtype);
    };
    if (bottleneck) add(inputs, width, 1, 1);
    add(bottleneck ? width : inputs, width, 3, stride);
    bottleneck ? add(width, outputs, 1, 1) : add(width, outputs, 3, 1);
    Extent shortcut = before;
    if (stride != 1 || inputs != outputs)
      shortcut_.emplace_back(name + ".downsample.0", name + ".downsample.1", inputs, outputs, 1, stride, shortcut, dtype);
  }

  Variable forward(const Variable& x, const Context& context) const override {
    Variable y = inner_.front()(x, context);
    for (size_t i = 1; i < inner_.size(); ++i) y = inner_[i](ops::relu(y), context);
    return ops::relu(ops::add(y, shortcut_.empty() ? x : shortcut_.front()(x, context)));
  }
  std::vector<nn::ParameterUse> parameters() const override {
    nn::ParameterList list;
    for (const ConvNorm& layer : inner_) layer.list(list);
    for (const ConvNorm& layer : shortcut_) layer.list(list);
    return list;
  }

 private:
  std::vector<ConvNorm> inner_, shortcut_;  // shortcut_ has one element if the block changes the shape, and none otherwise
};

class Head final : public nn::Module {
 public:
  Head(i64 inputs, i64 classes, DType dtype) : fc_("fc", inputs, classes, dtype, {.uniform = true, .to_classes = true}) {}

  Variable forward(const Variable& x, const Context& context) const override {
    return image_loss(fc_(nn::flatten(pool_(x, context)), context), context);
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(fc_); }

 private:
  nn::AdaptiveAvgPool2d pool_{1};
  nn::Linear fc_;
};

}  // namespace

ResNetConfig resnet20() { return {.widths = {16, 32, 64}, .blocks = {3, 3, 3}}; }
ResNetConfig resnet18() { return {.widths = {64, 128, 256, 512}, .blocks = {2, 2, 2, 2}, .large_stem = true}; }
ResNetConfig resnet34() { return {.widths = {64, 128, 256, 512}, .blocks = {3, 4, 6, 3}, .large_stem = true}; }
ResNetConfig resnet50() { return {.widths = {64, 128, 256, 512}, .blocks = {3, 4, 6, 3}, .bottleneck = true, .large_stem = true}; }

nn::Sequential build_resnet(const ResNetConfig& c, const Shape& image_CHW, i64 classes, DType dtype) {
  nn::Sequential model;
  Extent image{image_CHW[1], image_CHW[2]};
  model.push(std::make_unique<Stem>(c, image_CHW[0], image, dtype));
  i64 inputs = c.widths.front();
  for (size_t stage = 0; stage < c.widths.size(); ++stage) {
    for (i64 i = 0; i < c.blocks[stage]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      const i64 stride = stage > 0 && i == 0 ? 2 : 1;
      model.push(std::make_unique<ResidualBlock>(name, c.bottleneck, inputs, c.widths[stage], stride, image, dtype));
      inputs = c.bottleneck ? kWidening * c.widths[stage] : c.widths[stage];
    }
  }
  model.push(std::make_unique<Head>(inputs, classes, dtype));
  model.image_CHW = image_CHW;
  return model;
}

}  // namespace spillway::models
