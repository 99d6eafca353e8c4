#include "models/expert_mlps.h"

#include "models/stacked_experts.h"
#include "ops/elementwise/glu.h"

// Shape letters: M = N K rows, F = expert width.
namespace spillway::models {

using nn::Context;
using nn::Variable;

namespace {

nn::Linear product(const ModelConfig& c, const std::string& name, i64 in, i64 out, DType dtype, nn::StoredPart stored, bool stacked) {
  nn::Linear::Options options{.bias = false, .std = c.initializer_range};
  options.format = c.base_weights;
  if (stacked) options.weight_stored = {std::move(stored)};
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

ExpertMlps::ExpertMlps(const ModelConfig& c, const std::string& name, bool stacked, DType dtype)
    : chosen_(c.experts->chosen), gelu_gate_(style_of(c).gelu_gate) {
  const i64 E = c.experts->count, F = c.experts->width;
  const DecoderStyle::ExpertNames& names = style_of(c).experts;
  for (i64 e = 0; e < E; ++e) {
    const std::string expert = name + "." + std::to_string(e) + ".";
    const StackedExpert stack{name, E, F, c.width, e};
    gate_.push_back(product(c, expert + names.gate, c.width, F, dtype, stack.gate(), stacked));
    up_.push_back(product(c, expert + names.up, c.width, F, dtype, stack.up(), stacked));
    down_.push_back(product(c, expert + names.down, F, c.width, dtype, stack.down(), stacked));
  }
}

Variable ExpertMlps::operator()(const Variable& x_NC, const ops::Routed& routed, const Context& context) const {
  const ops::ExpertRows rows = ops::expert_rows(routed.experts_NK, std::ssize(gate_));
  const Variable x_MC = ops::to_experts(x_NC, rows);
  const Variable gate_MF = of_experts(gate_, x_MC, rows, context), up_MF = of_experts(up_, x_MC, rows, context);
  const Variable y_MC = of_experts(down_, gelu_gate_ ? ops::geglu(gate_MF, up_MF) : ops::swiglu(gate_MF, up_MF), rows, context);
  return ops::from_experts(y_MC, routed.weights_NK, rows);
}

void ExpertMlps::list(nn::ParameterList& parameters) const {
  const double share = static_cast<double>(chosen_) / static_cast<double>(gate_.size());
  for (size_t e = 0; e < gate_.size(); ++e) {
    for (const auto* layers : {&gate_, &up_, &down_}) list_expert((*layers)[e], share, parameters);
  }
}

}  // namespace spillway::models
