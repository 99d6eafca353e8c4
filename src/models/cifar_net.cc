#include "models/cifar_net.h"

#include "models/image_head.h"
#include "nn/image_layers.h"
#include "ops/elementwise.h"

namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

class ConvPart final : public nn::Module {
 public:
  explicit ConvPart(DType dtype) : conv1_("conv1", 3, 6, 5, dtype, {}), conv2_("conv2", 6, 16, 5, dtype, {}) {}

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
  explicit MlpPart(DType dtype)
      : fc1_("fc1", 16 * 5 * 5, 120, dtype, {.uniform = true}),
        fc2_("fc2", 120, 84, dtype, {.uniform = true}),
        fc3_("fc3", 84, 10, dtype, {.uniform = true}) {}

  Variable forward(const Variable& x, const Context& context) const override {
    return image_loss(fc3_(ops::relu(fc2_(ops::relu(fc1_(x, context)), context)), context), context);
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(fc1_, fc2_, fc3_); }

 private:
  nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

nn::Sequential build_cifar_net(DType dtype) {
  nn::Sequential model;
  model.push(std::make_unique<ConvPart>(dtype));
  model.push(std::make_unique<MlpPart>(dtype));
  model.image_CHW = {3, 32, 32};
  for (const auto& p : model.parameters) {
    if (p->name == "conv1.weight") p->positions = i64{28} * 28;
    if (p->name == "conv2.weight") p->positions = i64{10} * 10;
  }
  return model;
}

}  // namespace spillway::models
