#include "models/families/style.h"
#include "models/onnx/models.h"

// Shape letters: N = tokens, C = width, E = experts, K = experts per token, M = tokens of one expert.
namespace spillway::models::onnx {
namespace {

struct Routed {
  Value weights_NK, experts_NK;
};

Routed routed(Graph& g, const Value& x_NC, const std::string& name) {
  const ExpertsConfig& e = *g.config().experts;
  const Value shares_NE = g.node("Softmax", {wide(g, linear(g, x_NC, name + ".gate"))}, {{"axis", i64{-1}}});
  const std::vector<Value> chosen = g.nodes("TopK", {shares_NE, g.integers({e.chosen})}, 2);
  if (!e.normalised) return {chosen[0], chosen[1]};
  const Value sum_N1 = g.node("ReduceSum", {chosen[0], g.integers({1})}, {{"keepdims", i64{1}}});
  return {g.node("Div", {chosen[0], sum_N1}), chosen[1]};
}

Value expert_mlp(Graph& g, const Value& x_MC, const std::string& name) {
  const DecoderStyle::ExpertNames& names = style_of(g.config()).experts;
  const Value gate = silu(g, linear(g, x_MC, name + "." + names.gate)), up = linear(g, x_MC, name + "." + names.up);
  return linear(g, g.node("Mul", {gate, up}), name + "." + names.down);
}

}  // namespace

// Adds a mixture of experts. Each expert computes only the rows of the tokens that chose it.
Value experts(Graph& g, const Value& x_NC, const std::string& name) {
  const Routed to = routed(g, x_NC, name);
  const Value wide_NC = wide(g, x_NC);
  Value sum_NC = g.node("Sub", {wide_NC, wide_NC});
  for (i64 e = 0; e < g.config().experts->count; ++e) {
    const Value places_2M = g.node("NonZero", {g.node("Equal", {to.experts_NK, g.integer(e)})});
    const Value tokens_M = g.node("Gather", {places_2M, g.integer(0)}, {{"axis", i64{0}}});
    const Value weights_M = g.node("GatherND", {to.weights_NK, g.node("Transpose", {places_2M})});
    const Value y_MC = wide(g, expert_mlp(g, g.node("Gather", {x_NC, tokens_M}), name + ".experts." + std::to_string(e)));
    const Value weighted_MC = g.node("Mul", {y_MC, g.node("Unsqueeze", {weights_M, g.integers({1})})});
    const Value to_rows_M1 = g.node("Unsqueeze", {tokens_M, g.integers({1})});
    sum_NC = g.node("ScatterND", {sum_NC, to_rows_M1, weighted_MC}, {{"reduction", std::string("add")}});
  }
  return narrowed(g, sum_NC);
}

}  // namespace spillway::models::onnx
