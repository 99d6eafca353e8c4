#include "models/experts_beside.h"

#include <cmath>

#include "ops/elementwise/elementwise.h"
#include "ops/layout/index.h"
#include "ops/layout/shape.h"
#include "ops/rows/norm.h"

// Shape letters: B = batch size, T = positions, N = B T tokens, C = width, E = experts, K = experts per token.
namespace spillway::models {

using nn::Context;
using nn::Variable;

ExpertsBeside::ExpertsBeside(const ModelConfig& c, const std::string& name, DType dtype)
    : chosen_(c.experts->chosen),
      norm_eps_(c.norm_eps),
      after_mlp_(name + ".post_feedforward_layernorm_1", c.width, dtype, c.norm_eps),
      before_experts_(name + ".pre_feedforward_layernorm_2", c.width, dtype, c.norm_eps),
      after_experts_(name + ".post_feedforward_layernorm_2", c.width, dtype, c.norm_eps),
      router_(name + ".router.proj", c.width, c.experts->count, dtype, {.bias = false, .std = c.initializer_range}),
      channel_scale_C_(nn::make_parameter(name + ".router.scale", {c.width}, dtype, {nn::Initializer::Kind::ones})),
      expert_scale_E_(nn::make_parameter(name + ".router.per_expert_scale", {c.experts->count}, dtype, {nn::Initializer::Kind::ones})),
      mlps_(c, name, dtype) {}

Variable ExpertsBeside::operator()(const Variable& mlp_BTC, const Variable& x_BTC, const Context& context) const {
  const Shape shape = x_BTC.shape();
  const Variable x_NC = ops::reshape(x_BTC, {shape[0] * shape[1], shape[2]});
  const Variable scaled_NC =
      ops::scale(ops::rms_norm(x_NC, context.use(*channel_scale_C_), norm_eps_), 1 / std::sqrt(static_cast<double>(shape[2])));
  ops::Routed routed = ops::router(router_(scaled_NC, context), chosen_, {.normalised = true});
  const Shape choices = routed.experts_NK.shape();
  const Variable scales_NK =
      ops::reshape(ops::index_select(context.use(*expert_scale_E_), 0, routed.experts_NK.reshape({choices.elems()})), choices);
  routed.weights_NK = ops::mul(routed.weights_NK, ops::widened(scales_NK));
  const Variable y_NC = mlps_(before_experts_(x_NC, context), routed, context);
  return ops::add(after_mlp_(mlp_BTC, context), ops::reshape(after_experts_(y_NC, context), shape));
}

void ExpertsBeside::list(nn::ParameterList& parameters) const {
  after_mlp_.list(parameters);
  before_experts_.list(parameters);
  after_experts_.list(parameters);
  parameters.push_back({channel_scale_C_});
  router_.list(parameters);
  parameters.push_back({expert_scale_E_});
  mlps_.list(parameters);
}

}  // namespace spillway::models
