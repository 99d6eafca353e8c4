#include "models/layer_input.h"

#include <cmath>
#include <numbers>

#include "models/lora.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/rows/norm.h"

namespace spillway::models {

using nn::Context;
using nn::Variable;

namespace {

nn::Linear linear(const ModelConfig& c, const std::string& name, i64 in, i64 out, DType dtype) {
  nn::Linear::Options options{.bias = false, .std = c.initializer_range, .lora = lora_of(c, name)};
  options.format = c.base_weights, options.fp8 = c.fp8;
  return {name, in, out, dtype, options};
}

nn::Linear projection(const ModelConfig& c, const std::string& name, i64 layer, DType dtype) {
  const i64 P = c.layer_embedding, C = c.width;
  nn::Linear::Options options{.bias = false, .std = c.initializer_range};
  options.weight_stored = {{"model.per_layer_model_projection.weight", {c.layers * P, C}, layer * P * C, {{P * C, 1}}}};
  return {name, C, P, dtype, options};
}

}  // namespace

LayerInput::LayerInput(const ModelConfig& c, const std::string& name, i64 layer, std::shared_ptr<nn::Parameter> projection_norm,
                       DType dtype)
    : layer_(static_cast<u8>(layer)),
      norm_eps_(c.norm_eps),
      table_(name + ".per_layer_embedding", c.vocabulary, c.layer_embedding, dtype, c.initializer_range, c.padding_row.value_or(-1)),
      projection_(projection(c, name + ".per_layer_model_projection", layer, dtype)),
      projection_norm_(std::move(projection_norm)),
      gate_(linear(c, name + ".per_layer_input_gate", c.width, c.layer_embedding, dtype)),
      out_(linear(c, name + ".per_layer_projection", c.layer_embedding, c.width, dtype)),
      after_(name + ".post_per_layer_input_norm", c.width, dtype, c.norm_eps) {
  const i64 P = c.layer_embedding;
  table_.weight()->stored = {
      {"model.embed_tokens_per_layer.weight", {c.vocabulary, c.layers * P}, layer * P, {{c.vocabulary, c.layers * P}, {P, 1}}}};
}

Variable LayerInput::operator()(const Variable& x_BTC, const Variable& embedded_BTC, const Context& context) const {
  const Variable looked_up_BTP = table_(context.batch->tokens_BT, context);
  const double P = static_cast<double>(looked_up_BTP.shape()[2]), C = static_cast<double>(x_BTC.shape()[2]);
  const Variable projected_BTP =
      ops::rms_norm(ops::scale(projection_(embedded_BTC, context), 1 / std::sqrt(C)), context.use(*projection_norm_, layer_), norm_eps_);
  const Variable own_BTP = ops::scale(ops::add(projected_BTP, ops::scale(looked_up_BTP, std::sqrt(P))), 1 / std::numbers::sqrt2);
  return ops::add(x_BTC, after_(out_(ops::geglu(gate_(x_BTC, context), own_BTP), context), context));
}

void LayerInput::list(nn::ParameterList& parameters) const {
  table_.list(parameters);
  projection_.list(parameters);
  parameters.push_back({projection_norm_, layer_});
  for (const nn::Linear* layer : {&gate_, &out_}) layer->list(parameters);
  after_.list(parameters);
}

}  // namespace spillway::models
