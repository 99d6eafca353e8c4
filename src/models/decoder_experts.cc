#include "models/decoder_layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/experts/experts.h"
#include "ops/layout/shape.h"
#include "ops/products/linear.h"

// Shape letters: B = batch size, T = positions, N = B T tokens, C = width, E = experts, K = experts per token.
namespace spillway::models {

using nn::Context;
using nn::Variable;

namespace {

// Returns the configuration of a model whose MLPs are as wide as the shared expert.
ModelConfig with_shared_width(ModelConfig c) {
  c.mlp_width = c.experts->shared_width, c.wide_shared_mlp = false;
  return c;
}

std::string mixture_name(const ModelConfig& c, const std::string& layer) { return layer + "." + style_of(c).experts.mixture; }

}  // namespace

DecoderExperts::DecoderExperts(const ModelConfig& c, const std::string& layer_name, i64 layer, DType dtype)
    : chosen_(c.experts->chosen),
      normalised_(c.experts->normalised),
      routing_(c.experts->routing),
      loss_(c),
      router_(mixture_name(c, layer_name) + "." + style_of(c).experts.router, c.width, c.experts->count, dtype,
              {.bias = style_of(c).experts.biases, .std = c.initializer_range}),
      mlps_(c, mixture_name(c, layer_name), dtype) {
  const DecoderStyle::ExpertNames& names = style_of(c).experts;
  if (c.experts->shared_width > 0) shared_.emplace(with_shared_width(c), layer_name + "." + names.shared, layer, dtype);
  if (shared_ && names.shared_gate) shared_gate_.emplace(projection(c, layer_name + "." + names.shared_gate, c.width, 1, false, dtype));
  if (!routing_.corrected) return;
  const i64 E = c.experts->count;
  bias_E_ = nn::make_parameter(mixture_name(c, layer_name) + "." + names.correction, names.correction_is_row ? Shape{1, E} : Shape{E},
                               dtype, {nn::Initializer::Kind::zeros});
  bias_E_->frozen = true;
}

ops::RouterOptions DecoderExperts::options(const Context& context) const {
  ops::RouterOptions options{.groups = routing_.groups,
                             .chosen_groups = routing_.chosen_groups,
                             .best_of_group = routing_.best_of_group,
                             .normalised = normalised_,
                             .least_sum = routing_.least_sum,
                             .added_to_sum = routing_.added_to_sum,
                             .factor = routing_.factor};
  if (routing_.sigmoid) options.scores = ops::RouterOptions::Scores::sigmoid;
  if (bias_E_) options.bias_E = ops::widened(context.use(*bias_E_)).value.reshape({bias_E_->elems()});
  return options;
}

Variable DecoderExperts::logits(const Variable& x_NC, const Context& context) const {
  if (!routing_.wide) return router_(x_NC, context);
  return ops::linear(ops::widened(x_NC), ops::widened(router_.weights(context).w.stored), {}, ops::WeightLayout::out_in);
}

Variable DecoderExperts::operator()(const Variable& residual_BTC, const Variable& x_BTC, const Context& context) const {
  const Shape shape = x_BTC.shape();
  const Variable x_NC = ops::reshape(x_BTC, {shape[0] * shape[1], shape[2]});
  const ops::Routed routed = ops::router(logits(x_NC, context), chosen_, options(context), loss_.of_layer(context));
  loss_.add_layer(routed, context);
  Variable y_BTC = ops::reshape(mlps_(x_NC, routed, context), shape);
  if (residual_BTC.value.defined()) y_BTC = ops::add(residual_BTC, y_BTC);
  if (shared_gate_) return ops::add(y_BTC, ops::mul((*shared_)({}, x_BTC, context), ops::sigmoid((*shared_gate_)(x_BTC, context))));
  return shared_ ? (*shared_)(y_BTC, x_BTC, context) : y_BTC;
}

void DecoderExperts::list(nn::ParameterList& parameters) const {
  router_.list(parameters);
  if (bias_E_) parameters.push_back({bias_E_});
  mlps_.list(parameters);
  if (shared_) shared_->list(parameters);
  if (shared_gate_) shared_gate_->list(parameters);
}

}  // namespace spillway::models
