#include "models/resnet.h"

#include <optional>

#include "models/image_head.h"
#include "nn/image_layers.h"
#include "ops/elementwise.h"

namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

nn::Conv2d convolution(const std::string& name, i64 inputs, i64 outputs, i64 kernel, i64 stride, DType dtype) {
  return {name, inputs, outputs, kernel, dtype, {.stride = stride, .padding = kernel / 2, .bias = false}};
}

class Stem final : public nn::Module {
 public:
  Stem(const ResNetConfig& c, DType dtype)
      : conv1_(convolution("conv1", 3, c.widths.front(), c.large_stem ? 7 : 3, c.large_stem ? 2 : 1, dtype)),
        bn1_("bn1", c.widths.front(), dtype),
        pools_(c.large_stem) {}

  Variable forward(const Variable&, const Context& context) const override {
    const Variable x = ops::relu(bn1_(conv1_(context.batch->images_NCHW, context), context));
    return pools_ ? pool_(x, context) : x;
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(conv1_, bn1_); }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  bool pools_;
  nn::MaxPool2d pool_{3, 2, 1};
};

// What the shortcut does where the block changes the shape.
struct Downsample {
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
};

class BasicBlock final : public nn::Module {
 public:
  BasicBlock(const std::string& name, i64 inputs, i64 outputs, i64 stride, DType dtype)
      : conv1_(convolution(name + ".conv1", inputs, outputs, 3, stride, dtype)),
        bn1_(name + ".bn1", outputs, dtype),
        conv2_(convolution(name + ".conv2", outputs, outputs, 3, 1, dtype)),
        bn2_(name + ".bn2", outputs, dtype) {
    if (stride == 1 && inputs == outputs) return;
    downsample_.emplace(
        Downsample{convolution(name + ".downsample.0", inputs, outputs, 1, stride, dtype), {name + ".downsample.1", outputs, dtype}});
  }

  Variable forward(const Variable& x, const Context& context) const override {
    const Variable inner = ops::relu(bn1_(conv1_(x, context), context));
    const Variable y = bn2_(conv2_(inner, context), context);
    return ops::relu(ops::add(y, downsample_ ? downsample_->norm(downsample_->conv(x, context), context) : x));
  }
  std::vector<nn::ParameterUse> parameters() const override {
    nn::ParameterList list = nn::listed(conv1_, bn1_, conv2_, bn2_);
    if (downsample_) {
      downsample_->conv.list(list);
      downsample_->norm.list(list);
    }
    return list;
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  std::optional<Downsample> downsample_;
};

class Head final : public nn::Module {
 public:
  Head(const ResNetConfig& c, DType dtype) : fc_("fc", c.widths.back(), c.classes, dtype, {.uniform = true}) {}

  Variable forward(const Variable& x, const Context& context) const override {
    return image_loss(fc_(nn::flatten(pool_(x, context)), context), context);
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(fc_); }

 private:
  nn::AdaptiveAvgPool2d pool_{1};
  nn::Linear fc_;
};

}  // namespace

ResNetConfig resnet20() { return {{16, 32, 64}, 3, 10, false}; }
ResNetConfig resnet18() { return {{64, 128, 256, 512}, 2, 1000, true}; }

nn::Sequential build_resnet(const ResNetConfig& c, DType dtype) {
  nn::Sequential model;
  model.push(std::make_unique<Stem>(c, dtype));
  i64 inputs = c.widths.front();
  for (size_t stage = 0; stage < c.widths.size(); ++stage) {
    for (i64 i = 0; i < c.blocks; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      model.push(std::make_unique<BasicBlock>(name, inputs, c.widths[stage], stage > 0 && i == 0 ? 2 : 1, dtype));
      inputs = c.widths[stage];
    }
  }
  model.push(std::make_unique<Head>(c, dtype));
  return model;
}

}  // namespace spillway::models
