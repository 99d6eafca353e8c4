#include "models/cifar_net.h"

#include "models/image_parts.h"
#include "ops/elementwise/elementwise.h"

namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

// Returns a 5x5 convolution and updates `image` to the size after the convolution and its pooling.
nn::Conv2d pooled_convolution(const std::string& name, i64 inputs, i64 outputs, i64 padding, Extent& image, DType dtype) {
  nn::Conv2d conv = convolution(name, {outputs, 5, 1, padding}, inputs, image, dtype, {});
  image = image.behind(2, 2, 0);
  return conv;
}

class ConvPart final : public nn::Module {
 public:
  ConvPart(const ModelConfig& c, Extent& image, DType dtype)
      : conv1_(pooled_convolution("conv1", c.image_CHW[0], c.widths[0], c.family == Family::lenet ? 2 : 0, image, dtype)),
        conv2_(pooled_convolution("conv2", c.widths[0], c.widths[1], 0, image, dtype)) {}

  Variable forward(const Variable&, const Context& context) const override {
    const Variable x = pool_(ops::relu(conv1_(context.batch->images_NCHW, context)), context);
    return nn::flatten(pool_(ops::relu(conv2_(x, context)), context));
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(conv1_, conv2_); }

 private:
  nn::Conv2d conv1_, conv2_;
  nn::MaxPool2d pool_{2, 2};
};

class MlpPart final : public nn::Module {
 public:
  MlpPart(i64 inputs, const ModelConfig& c, DType dtype)
      : fc1_("fc1", inputs, c.widths[2], dtype, {.uniform = true}),
        fc2_("fc2", c.widths[2], c.widths[3], dtype, {.uniform = true}),
        fc3_("fc3", c.widths[3], c.vocabulary, dtype, {.uniform = true, .to_classes = true}) {}

  Variable forward(const Variable& x, const Context& context) const override {
    return image_loss(fc3_(ops::relu(fc2_(ops::relu(fc1_(x, context)), context)), context), context);
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(fc1_, fc2_, fc3_); }

 private:
  nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

nn::Sequential build_cifar_net(const ModelConfig& config, DType dtype) {
  nn::Sequential model;
  Extent image{config.image_CHW[1], config.image_CHW[2]};
  model.push(std::make_unique<ConvPart>(config, image, dtype));
  model.push(std::make_unique<MlpPart>(config.widths[1] * image.h * image.w, config, dtype));
  model.image_CHW = config.image_CHW;
  return model;
}

}  // namespace spillway::models
