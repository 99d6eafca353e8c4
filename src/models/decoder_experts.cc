#include "models/decoder_layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/experts/experts.h"
#include "ops/layout/shape.h"

// Shape letters: B = batch size, T = positions, N = B T tokens, C = width, E = experts, K = experts per token.
namespace spillway::models {

using nn::Context;
using nn::Variable;

DecoderExperts::DecoderExperts(const ModelConfig& c, const std::string& name, i64 /*layer*/, DType dtype)
    : chosen_(c.experts->chosen),
      normalised_(c.experts->normalised),
      loss_(c),
      router_(name + "." + style_of(c).experts.router, c.width, c.experts->count, dtype,
              {.bias = style_of(c).experts.biases, .std = c.initializer_range}),
      mlps_(c, name + ".experts", style_of(c).experts.interleaved, dtype) {}

Variable DecoderExperts::operator()(const Variable& residual_BTC, const Variable& x_BTC, const Context& context) const {
  const Shape shape = x_BTC.shape();
  const Variable x_NC = ops::reshape(x_BTC, {shape[0] * shape[1], shape[2]});
  const ops::Routed routed = ops::router(router_(x_NC, context), chosen_, {.normalised = normalised_}, loss_.of_layer(context));
  loss_.add_layer(routed, context);
  const Variable y_BTC = ops::reshape(mlps_(x_NC, routed, context), shape);
  return residual_BTC.value.defined() ? ops::add(residual_BTC, y_BTC) : y_BTC;
}

void DecoderExperts::list(nn::ParameterList& parameters) const {
  router_.list(parameters);
  mlps_.list(parameters);
}

}  // namespace spillway::models
