#include "models/expert_mlps.h"

#include <span>

#include "data/weights/mxfp4.h"
#include "models/stacked_experts.h"
#include "ops/elementwise/glu.h"

// Shape letters: M = N K rows, F = expert width, I = inputs, O = outputs.
namespace spillway::models {

using nn::Context;
using nn::Variable;

namespace {

// Adds the parameters of an expert's layer to `parameters` and records how often a token is expected to use them.
void list_expert(const nn::Linear& layer, double share, nn::ParameterList& parameters) {
  const size_t first = parameters.size();
  layer.list(parameters);
  for (const nn::ParameterUse& use : std::span(parameters).subspan(first)) use.parameter->positions = share;
}

}  // namespace

ExpertMlps::ExpertMlps(const ModelConfig& c, const std::string& mixture, DType dtype)
    : chosen_(c.experts->chosen), gelu_gate_(style_of(c).gelu_gate), biased_(style_of(c).experts.biases), clamp_(c.experts->clamp) {
  const i64 E = c.experts->count, F = c.experts->width;
  const DecoderStyle::ExpertNames& names = style_of(c).experts;
  const std::string name = mixture + ".experts";
  const bool stacked = names.stacked || names.interleaved;
  using Forms = std::vector<nn::StoredPart>;
  const auto product = [&](const std::string& layer, i64 in, i64 out, Forms weight, nn::StoredPart bias) -> nn::Linear {
    nn::Linear::Options options{.bias = biased_, .std = c.initializer_range};
    options.format = c.base_weights;
    options.weight_stored = std::move(weight);
    // Folders that publish experts one by one become stacked when transformers 5 saves them without going back to the published form.
    if (!stacked) options.weight_stored.insert(options.weight_stored.begin(), nn::whole_tensor(layer + ".weight", {out, in}));
    if (stacked && biased_) options.bias_stored = {std::move(bias)};
    return {layer, in, out, dtype, options};
  };
  for (i64 e = 0; e < E; ++e) {
    const std::string expert = name + "." + std::to_string(e) + ".";
    const StackedExpert stack{mixture + "." + names.stacked_gate_up, mixture + "." + names.stacked_down, E, F, c.width, e};
    const InterleavedExpert turns{name, E, F, c.width, e};
    const bool blocks = c.width % data::kMxfp4Block == 0 && F % data::kMxfp4Block == 0;
    const auto forms = [&](nn::StoredPart plain, nn::StoredPart interleaved, nn::StoredPart mxfp4) -> Forms {
      if (!names.interleaved) return {std::move(plain)};
      if (!blocks) return {std::move(interleaved)};
      return {std::move(interleaved), std::move(mxfp4)};
    };
    gate_.push_back(product(expert + names.gate, c.width, F, forms(stack.gate(), turns.gate(), turns.gate_mxfp4()), turns.gate_bias()));
    up_.push_back(product(expert + names.up, c.width, F, forms(stack.up(), turns.up(), turns.up_mxfp4()), turns.up_bias()));
    down_.push_back(product(expert + names.down, F, c.width, forms(stack.down(), turns.down(), turns.down_mxfp4()), turns.down_bias()));
  }
}

Variable ExpertMlps::operator()(const Variable& x_NC, const ops::Routed& routed, const Context& context) const {
  const ops::ExpertRows rows = ops::expert_rows(routed.experts_NK, std::ssize(gate_));
  const auto of_experts = [&](const std::vector<nn::Linear>& layers, const Variable& x_MI) {
    std::vector<ops::Weight> weights;
    std::vector<Variable> biases;
    for (const nn::Linear& layer : layers) {
      const ops::LinearWeights expert = layer.weights(context);
      weights.push_back(expert.w);
      biases.push_back(expert.bias);
    }
    const Variable y_MO = ops::expert_linear(x_MI, weights, rows);
    return biased_ ? ops::add_expert_biases(y_MO, biases, routed.experts_NK, rows) : y_MO;
  };
  const Variable x_MC = ops::to_experts(x_NC, rows), gate_MF = of_experts(gate_, x_MC), up_MF = of_experts(up_, x_MC);
  const Variable z_MF = clamp_       ? ops::clamped_swiglu(gate_MF, up_MF, *clamp_)
                        : gelu_gate_ ? ops::geglu(gate_MF, up_MF)
                                     : ops::swiglu(gate_MF, up_MF);
  return ops::from_experts(of_experts(down_, z_MF), routed.weights_NK, rows);
}

void ExpertMlps::list(nn::ParameterList& parameters) const {
  const double share = static_cast<double>(chosen_) / static_cast<double>(gate_.size());
  for (size_t e = 0; e < gate_.size(); ++e) {
    for (const auto* layers : {&gate_, &up_, &down_}) list_expert((*layers)[e], share, parameters);
  }
}

}  // namespace spillway::models
