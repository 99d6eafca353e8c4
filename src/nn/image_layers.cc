#include "nn/image_layers.h"

#include "base/error.h"
#include "ops/images/batch_norm.h"
#include "ops/layout/shape.h"

namespace spillway::nn {
namespace {

std::shared_ptr<Parameter> statistic(const std::string& name, i64 channels, DType dtype, Initializer::Kind start) {
  auto parameter = make_parameter(name, {channels}, dtype, {start});
  parameter->statistic = true;
  return parameter;
}

// Returns the number of input channels of one group. The constructor calls inputs_of_group()
// first, so that it creates no parameters if the numbers of channels do not fit the groups.
i64 inputs_of_group(i64 inputs, i64 outputs, i64 groups) {
  require(groups >= 1 && inputs % groups == 0 && outputs % groups == 0,
          "[conv2d] expected the numbers of input and output channels to be multiples of the number of groups");
  return inputs / groups;
}

}  // namespace

Conv2d::Conv2d(const std::string& name, i64 inputs, i64 outputs, Pair kernel, DType dtype, const Options& o)
    : options_{o.stride, o.padding, o.dilation, o.groups} {
  const i64 channels = inputs_of_group(inputs, outputs, o.groups);
  const Initializer uniform = uniform_by_inputs(channels * kernel.h * kernel.w);
  const bool normal = o.std > 0;
  weight_ = make_parameter(name + ".weight", {outputs, channels, kernel.h, kernel.w}, dtype,
                           normal ? Initializer{Initializer::Kind::normal, o.std} : uniform);
  weight_->positions = static_cast<double>(o.positions);
  if (o.bias) bias_ = make_parameter(name + ".bias", {outputs}, dtype, normal ? Initializer{Initializer::Kind::zeros} : uniform);
}

Variable Conv2d::operator()(const Variable& x, const Context& context) const {
  return ops::conv2d(x, context.use(*weight_), bias_ ? context.use(*bias_) : Variable(), options_);
}

void Conv2d::list(ParameterList& parameters) const {
  parameters.push_back({weight_});
  if (bias_) parameters.push_back({bias_});
}

BatchNorm2d::BatchNorm2d(const std::string& name, i64 channels, DType dtype, double eps)
    : weight_(make_parameter(name + ".weight", {channels}, dtype, {Initializer::Kind::ones})),
      bias_(make_parameter(name + ".bias", {channels}, dtype, {Initializer::Kind::zeros})),
      running_mean_(statistic(name + ".running_mean", channels, dtype, Initializer::Kind::zeros)),
      running_variance_(statistic(name + ".running_var", channels, dtype, Initializer::Kind::ones)),
      eps_(eps) {}

Variable BatchNorm2d::operator()(const Variable& x, const Context& context) const {
  const ops::BatchNormOptions options{eps_, context.mode == Mode::train && !running_mean_->frozen};
  return ops::batch_norm2d(x, context.use(*weight_), context.use(*bias_), context.use(*running_mean_), context.use(*running_variance_),
                           options);
}

void BatchNorm2d::list(ParameterList& parameters) const {
  for (const auto& parameter : {weight_, bias_, running_mean_, running_variance_}) parameters.push_back({parameter});
}

Variable flatten(const Variable& x) { return ops::reshape(x, {x.shape()[0], x.value.elems() / x.shape()[0]}); }

}  // namespace spillway::nn
