#include "models/decoder_layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/experts/experts.h"
#include "ops/layout/shape.h"

// Shape letters: B = batch size, T = positions, N = B T tokens, C = width, E = experts, K = experts per token, M = N K rows, F = expert
// width.
namespace spillway::models {

using nn::Context;
using nn::Variable;

namespace {

nn::Linear product(const ModelConfig& c, const std::string& name, i64 in, i64 out, DType dtype, kernels::WeightFormat format) {
  nn::Linear::Options options{.bias = false, .std = c.initializer_range};
  options.format = format;
  return {name, in, out, dtype, options};
}

// Adds the weight of an expert's layer to `parameters` and records how often a token is expected to use the weight.
void list_expert(const nn::Linear& layer, double share, nn::ParameterList& parameters) {
  layer.list(parameters);
  parameters.back().parameter->positions = share;
}

Variable of_experts(const std::vector<nn::Linear>& layers, const Variable& x_MI, const ops::ExpertRows& rows, const Context& context) {
  std::vector<ops::Weight> weights;
  for (const nn::Linear& layer : layers) weights.push_back(layer.weights(context).w);
  return ops::expert_linear(x_MI, weights, rows);
}

}  // namespace

DecoderExperts::DecoderExperts(const ModelConfig& c, const std::string& name, DType dtype)
    : chosen_(c.experts->chosen),
      normalised_(c.experts->normalised),
      loss_(c),
      router_(product(c, name + ".gate", c.width, c.experts->count, dtype, kernels::WeightFormat::plain)) {
  const i64 F = c.experts->width;
  const DecoderStyle::ExpertNames& names = style_of(c).experts;
  for (i64 e = 0; e < c.experts->count; ++e) {
    const std::string expert = name + ".experts." + std::to_string(e) + ".";
    gate_.push_back(product(c, expert + names.gate, c.width, F, dtype, c.base_weights));
    up_.push_back(product(c, expert + names.up, c.width, F, dtype, c.base_weights));
    down_.push_back(product(c, expert + names.down, F, c.width, dtype, c.base_weights));
  }
}

Variable DecoderExperts::operator()(const Variable& residual_BTC, const Variable& x_BTC, const Context& context) const {
  const Shape shape = x_BTC.shape();
  const Variable x_NC = ops::reshape(x_BTC, {shape[0] * shape[1], shape[2]});
  const ops::Routed routed = ops::router(router_(x_NC, context), chosen_, normalised_, loss_.of_layer(context));
  const ops::ExpertRows rows = ops::expert_rows(routed.experts_NK, static_cast<i64>(gate_.size()));
  loss_.add_layer(routed, context);
  const Variable x_MC = ops::to_experts(x_NC, rows);
  const Variable gate_MF = of_experts(gate_, x_MC, rows, context), up_MF = of_experts(up_, x_MC, rows, context);
  const Variable y_MC = of_experts(down_, ops::swiglu(gate_MF, up_MF), rows, context);
  const Variable y_BTC = ops::reshape(ops::from_experts(y_MC, routed.weights_NK, rows), shape);
  return residual_BTC.value.defined() ? ops::add(residual_BTC, y_BTC) : y_BTC;
}

void DecoderExperts::list(nn::ParameterList& parameters) const {
  router_.list(parameters);
  const double share = static_cast<double>(chosen_) / static_cast<double>(gate_.size());
  for (size_t e = 0; e < gate_.size(); ++e) {
    for (const auto* layers : {&gate_, &up_, &down_}) list_expert((*layers)[e], share, parameters);
  }
}

}  // namespace spillway::models
