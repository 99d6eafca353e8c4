#include "nn/layers.h"

#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/norm.h"

namespace spillway::nn {
namespace {

constexpr Initializer kZeros{Initializer::Kind::zeros}, kOnes{Initializer::Kind::ones};

Initializer normal_of(double std) { return {Initializer::Kind::normal, std}; }

}  // namespace

Linear::Linear(const std::string& name, i64 inputs, i64 outputs, DType dtype, const Options& options)
    : weight_(make_parameter(name + ".weight",
                             options.layout == ops::WeightLayout::out_in ? Shape{outputs, inputs} : Shape{inputs, outputs}, dtype,
                             options.uniform ? uniform_by_inputs(inputs) : normal_of(options.std))),
      bias_(options.bias ? make_parameter(name + ".bias", {outputs}, dtype, options.uniform ? uniform_by_inputs(inputs) : kZeros)
                         : nullptr),
      layout_(options.layout) {}

Variable Linear::operator()(const Variable& x, const Context& context) const {
  return ops::linear(x, context.use(*weight_), bias_ ? context.use(*bias_) : Variable(), layout_);
}

void Linear::list(ParameterList& parameters) const {
  parameters.push_back({weight_});
  if (bias_) parameters.push_back({bias_});
}

Embedding::Embedding(const std::string& name, i64 rows, i64 channels, DType dtype, double std)
    : weight_(make_parameter(name + ".weight", {rows, channels}, dtype, normal_of(std))) {}

Variable Embedding::operator()(const Tensor& ids_BT, const Context& context) const { return ops::embedding(ids_BT, context.use(*weight_)); }

void Embedding::list(ParameterList& parameters) const { parameters.push_back({weight_}); }

LayerNorm::LayerNorm(const std::string& name, i64 channels, DType dtype, double eps)
    : weight_(make_parameter(name + ".weight", {channels}, dtype, kOnes)),
      bias_(make_parameter(name + ".bias", {channels}, dtype, kZeros)),
      eps_(eps) {}

Variable LayerNorm::operator()(const Variable& x, const Context& context) const {
  return ops::layer_norm(x, context.use(*weight_), context.use(*bias_), eps_);
}

void LayerNorm::list(ParameterList& parameters) const {
  parameters.push_back({weight_});
  parameters.push_back({bias_});
}

RmsNorm::RmsNorm(const std::string& name, i64 channels, DType dtype, double eps)
    : weight_(make_parameter(name + ".weight", {channels}, dtype, kOnes)), eps_(eps) {}

Variable RmsNorm::operator()(const Variable& x, const Context& context) const { return ops::rms_norm(x, context.use(*weight_), eps_); }

void RmsNorm::list(ParameterList& parameters) const { parameters.push_back({weight_}); }

Variable Dropout::operator()(const Variable& x, const Context& context) const {
  const double share_now = share(context);
  return share_now > 0 ? ops::dropout(x, share_now, key(context), context.batch->first_sample) : x;
}

}  // namespace spillway::nn
