#include "nn/layers.h"

#include "ops/elementwise/dropout.h"
#include "ops/elementwise/elementwise.h"
#include "ops/rows/norm.h"
#include "ops/sequence/embedding.h"

namespace spillway::nn {
namespace {

constexpr Initializer kZeros{Initializer::Kind::zeros}, kOnes{Initializer::Kind::ones};

Initializer normal_of(double std) { return {Initializer::Kind::normal, std}; }

}  // namespace

Linear::Linear(const std::string& name, i64 inputs, i64 outputs, DType dtype, const Options& options)
    : weight_(make_parameter(name + ".weight",
                             options.layout == ops::WeightLayout::out_in ? Shape{outputs, inputs} : Shape{inputs, outputs}, dtype,
                             options.uniform ? uniform_by_inputs(inputs) : normal_of(options.std), options.format)),
      bias_(options.bias ? make_parameter(name + ".bias", {outputs}, dtype, options.uniform ? uniform_by_inputs(inputs) : kZeros)
                         : nullptr),
      layout_(options.layout),
      fp8_(options.fp8),
      lora_scale_(options.lora.scale),
      lora_dropout_(name + ".lora_dropout", options.lora.dropout) {
  weight_->of_ids = options.to_classes;
  weight_->stored = options.weight_stored;
  if (bias_) bias_->stored = options.bias_stored;
  const i64 rank = options.lora.rank;
  if (rank == 0) return;
  a_ = make_parameter(name + ".lora_A.weight", {rank, inputs}, dtype, uniform_by_inputs(inputs));
  b_ = make_parameter(name + ".lora_B.weight", {outputs, rank}, dtype, kZeros);
}

Variable Linear::operator()(const Variable& x, const Context& context, const Variable& residual) const {
  const Variable y = ops::linear(x, weights(context), residual);
  if (!has_lora()) return y;
  const Variable thin = ops::linear(lora_dropout_(x, context), context.use(*a_), {}, ops::WeightLayout::out_in);
  return ops::linear(ops::scale(thin, lora_scale_), context.use(*b_), {}, ops::WeightLayout::out_in, y);
}

ops::LinearWeights Linear::weights(const Context& context) const {
  return {{context.use(*weight_), weight_->format, weight_->shape}, bias_ ? context.use(*bias_) : Variable(), layout_, fp8_};
}

void Linear::list(ParameterList& parameters) const {
  parameters.push_back({weight_});
  for (const auto& more : {bias_, a_, b_}) {
    if (more) parameters.push_back({more});
  }
}

Embedding::Embedding(const std::string& name, i64 rows, i64 channels, DType dtype, double std, i64 padding_row)
    : weight_(make_parameter(name + ".weight", {rows, channels}, dtype, normal_of(std))), padding_row_(padding_row) {
  weight_->of_ids = true;
}

Variable Embedding::operator()(const Tensor& ids_BT, const Context& context) const {
  return ops::embedding(ids_BT, context.use(*weight_), padding_row_);
}

void Embedding::list(ParameterList& parameters) const { parameters.push_back({weight_}); }

LayerNorm::LayerNorm(const std::string& name, i64 channels, DType dtype, double eps, bool bias)
    : weight_(make_parameter(name + ".weight", {channels}, dtype, kOnes)),
      bias_(bias ? make_parameter(name + ".bias", {channels}, dtype, kZeros) : nullptr),
      eps_(eps) {}

Variable LayerNorm::operator()(const Variable& x, const Context& context) const {
  return ops::layer_norm(x, context.use(*weight_), bias_ ? context.use(*bias_) : Variable(), eps_);
}

void LayerNorm::list(ParameterList& parameters) const {
  parameters.push_back({weight_});
  if (bias_) parameters.push_back({bias_});
}

RmsNorm::RmsNorm(const std::string& name, i64 channels, DType dtype, double eps, double gain_offset)
    : weight_(make_parameter(name + ".weight", {channels}, dtype, gain_offset == 0 ? kOnes : kZeros)),
      eps_(eps),
      gain_offset_(gain_offset) {}

Variable RmsNorm::operator()(const Variable& x, const Context& context) const {
  return ops::rms_norm(x, context.use(*weight_), eps_, gain_offset_);
}

void RmsNorm::list(ParameterList& parameters) const { parameters.push_back({weight_}); }

Variable Dropout::operator()(const Variable& x, const Context& context) const {
  const double share_now = share(context);
  return share_now > 0 ? ops::dropout(x, share_now, key(context), context.batch->first_sample) : x;
}

}  // namespace spillway::nn
