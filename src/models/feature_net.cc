#include "models/feature_net.h"

#include "models/image_parts.h"
#include "ops/elementwise/elementwise.h"

namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

constexpr i64 kHidden = 4096;

class ConvBlock final : public nn::Module {
 public:
  // Creates the block of a convolution. `pool` is 0 if there is no pooling, `extent` is 0 if there is no pooling to a fixed image size.
  ConvBlock(nn::Conv2d conv, bool first, i64 pool, i64 extent) : conv_(std::move(conv)), first_(first), pool_(pool), extent_(extent) {}

  Variable forward(const Variable& in, const Context& context) const override {
    Variable x = ops::relu(conv_(first_ ? Variable(context.batch->images_NCHW) : in, context));
    if (pool_ > 0) x = ops::max_pool2d(x, pool_, 2);
    return extent_ > 0 ? nn::flatten(ops::adaptive_avg_pool2d(x, extent_)) : x;
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(conv_); }

 private:
  nn::Conv2d conv_;
  bool first_;
  i64 pool_, extent_;
};

class LinearBlock final : public nn::Module {
 public:
  LinearBlock(const std::string& name, i64 inputs, i64 outputs, nn::Linear::Options options, double dropout, bool drops_first, DType dtype)
      : linear_(name, inputs, outputs, dtype, options), dropout_(name, dropout), drops_first_(drops_first) {}

  Variable forward(const Variable& x, const Context& context) const override {
    if (drops_first_) return ops::relu(linear_(dropout_(x, context), context));
    return dropout_(ops::relu(linear_(x, context)), context);
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(linear_); }

 private:
  nn::Linear linear_;
  nn::Dropout dropout_;
  bool drops_first_;
};

class Classifier final : public nn::Module {
 public:
  Classifier(const std::string& name, i64 classes, nn::Linear::Options options, DType dtype)
      : linear_(name, kHidden, classes, dtype, of_classes(options)) {}
  Variable forward(const Variable& x, const Context& context) const override { return image_loss(linear_(x, context), context); }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(linear_); }

 private:
  static nn::Linear::Options of_classes(nn::Linear::Options options) {
    options.to_classes = true;
    return options;
  }
  nn::Linear linear_;
};

}  // namespace

FeatureForm feature_form(Family family) {
  if (family == Family::alexnet) {
    return {{{{64, 11, 4, 2}, true}, {{192, 5, 1, 2}, true}, {{384, 3, 1, 1}}, {{256, 3, 1, 1}}, {{256, 3, 1, 1}, true}},
            3,
            6,
            true,
            {1, 4, 6}};
  }
  std::vector<FeatureForm::Convolution> all;
  for (const auto& [outputs, pooled] :
       {std::pair(64, true), {128, true}, {256, false}, {256, true}, {512, false}, {512, true}, {512, false}, {512, true}})
    all.push_back({{outputs, 3, 1, 1}, pooled});
  return {all, 2, 7, false, {0, 3, 6}};
}

nn::Sequential build_feature_net(const ModelConfig& config, DType dtype) {
  const FeatureForm form = feature_form(config.family);
  const bool alexnet = config.family == Family::alexnet;  // AlexNet uses PyTorch's default initialisation and VGG uses torchvision's
  nn::Sequential model;
  Extent image{config.image_CHW[1], config.image_CHW[2]};
  i64 channels = config.image_CHW[0];
  int number = 0;
  for (size_t i = 0; i < form.convolutions.size(); ++i) {
    const auto& [conv, pooled] = form.convolutions[i];
    nn::Conv2d layer =
        convolution("features." + std::to_string(number), conv, channels, image, dtype, {.std = alexnet ? 0 : std_by_outputs(conv)});
    const bool last = i + 1 == form.convolutions.size();
    model.push(std::make_unique<ConvBlock>(std::move(layer), i == 0, pooled ? form.pool_kernel : 0, last ? form.extent : 0));
    if (pooled) image = image.behind(form.pool_kernel, 2, 0);
    channels = conv.outputs;
    number += pooled ? 3 : 2;
  }
  const auto name = [&](size_t layer) { return "classifier." + std::to_string(form.linear_numbers[layer]); };
  const nn::Linear::Options options{.std = 0.01, .uniform = alexnet};
  i64 inputs = channels * form.extent * form.extent;
  for (const size_t layer : {0, 1}) {
    model.push(std::make_unique<LinearBlock>(name(layer), inputs, kHidden, options, config.residual_dropout, form.drops_first, dtype));
    inputs = kHidden;
  }
  model.push(std::make_unique<Classifier>(name(2), config.vocabulary, options, dtype));
  model.image_CHW = config.image_CHW;
  return model;
}

}  // namespace spillway::models
