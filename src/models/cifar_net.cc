#include "models/cifar_net.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "models/image_head.h"
#include "nn/image_layers.h"
#include "ops/elementwise.h"

namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

class ConvPart final : public nn::Module {
 public:
  ConvPart(i64 channels, DType dtype) : conv1_("conv1", channels, 6, 5, dtype, {}), conv2_("conv2", 6, 16, 5, dtype, {}) {}

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
  MlpPart(i64 inputs, i64 classes, DType dtype)
      : fc1_("fc1", inputs, 120, dtype, {.uniform = true}),
        fc2_("fc2", 120, 84, dtype, {.uniform = true}),
        fc3_("fc3", 84, classes, dtype, {.uniform = true}) {}

  Variable forward(const Variable& x, const Context& context) const override {
    return image_loss(fc3_(ops::relu(fc2_(ops::relu(fc1_(x, context)), context)), context), context);
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(fc1_, fc2_, fc3_); }

 private:
  nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

nn::Sequential build_cifar_net(const Shape& image_CHW, i64 classes, DType dtype) {
  const i64 h1 = image_CHW[1] - 4, w1 = image_CHW[2] - 4, h2 = h1 / 2 - 4, w2 = w1 / 2 - 4;
  if (std::min(image_CHW[1], image_CHW[2]) < kLeastCifarNetSide) {
    throw Error(ErrorCode::usage,
                fmt::format("[cifar-net] expected images of at least {0} x {0} pixels, got {1} x {2}: --image-size scales "
                            "those in folders",
                            kLeastCifarNetSide, image_CHW[1], image_CHW[2]));
  }
  nn::Sequential model;
  model.push(std::make_unique<ConvPart>(image_CHW[0], dtype));
  model.push(std::make_unique<MlpPart>(16 * (h2 / 2) * (w2 / 2), classes, dtype));
  model.image_CHW = image_CHW;
  for (const auto& p : model.parameters) {
    if (p->name == "conv1.weight") p->positions = h1 * w1;
    if (p->name == "conv2.weight") p->positions = h2 * w2;
  }
  return model;
}

}  // namespace spillway::models
