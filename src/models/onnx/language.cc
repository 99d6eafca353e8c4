#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "models/families/family.h"
#include "models/onnx/attention.h"
#include "models/onnx/models.h"

namespace spillway::models::onnx {
namespace {

Value add(Graph& g, const Value& x, const Value& y) { return g.node("Add", {x, y}); }

void add_logits(Graph& g, const Positions& positions, const Value& x_NC, const std::string& embedding) {
  const ModelConfig& c = g.config();
  const Value logits_NV = softcapped(g, wide(g, product(g, x_NC, c.tied_head ? embedding : "lm_head.weight")), c.logit_softcap);
  const Value shape = g.node("Concat", {positions.rows_and_length, g.integers({c.vocabulary})}, {{"axis", i64{0}}});
  g.name(g.node("Reshape", {logits_NV, shape}), "logits");
  g.output("logits", ElementType::f32, {"batch", "sequence", c.vocabulary});
}

Value activated(Graph& g, const Value& x) {
  switch (g.config().activation) {
    case Activation::gelu_tanh:
      return gelu_tanh(g, x);
    case Activation::gelu_erf:
      return gelu_erf(g, x);
    case Activation::relu:
      return g.node("Relu", {x});
  }
  throw Error(ErrorCode::bug, "[onnx] expected a known activation function, got another");
}

Queries thirds(Graph& g, const Value& x_N3C) {
  const std::vector<Value> parts = g.nodes("Split", {x_N3C}, 3, {{"axis", i64{1}}});
  return {parts[0], parts[1], parts[2]};
}

double gpt2_scale(const ModelConfig& c, i64 layer) {
  const double scale = c.scale_attention ? 1 / std::sqrt(static_cast<double>(c.head_dim)) : 1;
  return c.scale_attention_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

// Applies the query/key norm of the model's family to [N, heads D]: over each head, or
// over the whole row before the split into heads. Without such a norm, x is unchanged.
Value normed_heads(Graph& g, const Value& x, const std::string& name) {
  const ModelConfig& c = g.config();
  const DecoderStyle& style = style_of(c);
  if (style.qk_norm == DecoderStyle::QkNorm::none) return x;
  const bool by_head = style.qk_norm == DecoderStyle::QkNorm::head;
  return rms_norm(g, by_head ? reshape(g, x, {0, -1, c.head_dim}) : x, name, c.norm_eps, style.gain_offset);
}

Queries queries_of(Graph& g, const Value& x_NC, const std::string& name) {
  const ModelConfig& c = g.config();
  if (!style_of(c).fused_qkv) {
    const Value q = linear(g, x_NC, name + ".q_proj"), k = linear(g, x_NC, name + ".k_proj");
    return {normed_heads(g, q, name + ".q_norm"), normed_heads(g, k, name + ".k_norm"), linear(g, x_NC, name + ".v_proj")};
  }
  const Value all = linear(g, x_NC, name + ".qkv_proj");
  const i64 q = c.heads * c.head_dim, k = c.kv_heads * c.head_dim;
  return {slice(g, all, 1, 0, q), slice(g, all, 1, q, q + k), slice(g, all, 1, q + k, q + 2 * k)};
}

Value decoder_attention(Graph& g, Positions& positions, const Value& x_NC, const std::string& name, i64 layer) {
  const ModelConfig& c = g.config();
  const double usual = 1 / std::sqrt(c.query_scalar > 0 ? c.query_scalar : static_cast<double>(c.head_dim));
  const double scale = c.attention_multiplier != 0 ? c.attention_multiplier : usual;
  return linear(g, attention(g, positions, queries_of(g, x_NC, name), layer, scale, true), name + ".o_proj");
}

Value decoder_mlp(Graph& g, const Value& x_NC, const std::string& name) {
  const DecoderStyle& style = style_of(g.config());
  const i64 width = g.config().mlp_width;
  const Value both = style.fused_gate ? linear(g, x_NC, name + ".gate_up_proj") : Value();
  const Value gate = style.fused_gate ? slice(g, both, 1, 0, width) : linear(g, x_NC, name + ".gate_proj");
  const Value up = style.fused_gate ? slice(g, both, 1, width, 2 * width) : linear(g, x_NC, name + ".up_proj");
  const Value activated = style.gelu_gate ? gelu_tanh(g, gate) : silu(g, gate);
  return linear(g, g.node("Mul", {activated, up}), name + ".down_proj");
}

Value decoder_feed_forward(Graph& g, const Value& x_NC, const std::string& layer_name, i64 layer) {
  const ModelConfig& c = g.config();
  if (!c.has_experts(layer)) return decoder_mlp(g, x_NC, layer_name + ".mlp");
  return experts(g, x_NC, layer_name + "." + style_of(c).experts.mixture);
}

void refuse_unknown(const ModelConfig& c) {
  if (!c.mixers.empty()) {
    throw Error(ErrorCode::usage, fmt::format("[export] --format onnx: expected a model whose layers are all attention, got a {}: use "
                                              "--format hf",
                                              decoder_family(c.family).type));
  }
  if (c.full_attention) {
    throw Error(ErrorCode::usage, fmt::format("[export] --format onnx: expected a model whose layers have the same heads, got a {}: use "
                                              "--format hf",
                                              decoder_family(c.family).type));
  }
  if (!c.rope_scaling) return;
  const bool longrope = c.rope_scaling->kind == RopeScaling::Kind::longrope;
  if (!longrope && c.rope_scaling->query_growth == 0) return;
  throw Error(ErrorCode::usage, fmt::format("[export] --format onnx: expected a model without {}, got one with it: use --format hf",
                                            longrope ? "rope_type longrope" : "llama_4_scaling_beta"));
}

}  // namespace

void add_gpt2(Graph& g) {
  const ModelConfig& c = g.config();
  Positions positions(g);
  const auto rows_of = [&](const char* table, const Value& ids) { return g.node("Gather", {g.weight(table), ids}); };
  Value x = add(g, rows_of("transformer.wte.weight", positions.ids_N), rows_of("transformer.wpe.weight", positions.positions_N));
  for (i64 layer = 0; layer < c.layers; ++layer) {
    const std::string name = "transformer.h." + std::to_string(layer);
    const Value qkv = linear(g, layer_norm(g, x, name + ".ln_1", c.norm_eps), name + ".attn.c_attn", true);
    const Value mixed = attention(g, positions, thirds(g, qkv), layer, gpt2_scale(c, layer), false);
    x = add(g, x, linear(g, mixed, name + ".attn.c_proj", true));
    const Value up = activated(g, linear(g, layer_norm(g, x, name + ".ln_2", c.norm_eps), name + ".mlp.c_fc", true));
    x = add(g, x, linear(g, up, name + ".mlp.c_proj", true));
  }
  add_logits(g, positions, layer_norm(g, x, "transformer.ln_f", c.norm_eps), "transformer.wte.weight");
}

void add_decoder(Graph& g) {
  const ModelConfig& c = g.config();
  const DecoderStyle& style = style_of(c);
  refuse_unknown(c);
  const auto norm = [&](const Value& x, const std::string& name) {
    return style.layer_norm ? layer_norm(g, x, name, c.norm_eps) : rms_norm(g, x, name, c.norm_eps, style.gain_offset);
  };
  const auto times = [&](const Value& x, double factor) { return factor == 1 ? x : g.node("Mul", {x, g.number(factor)}); };
  Positions positions(g);
  const std::string embedding = "model.embed_tokens.weight";
  Value x = g.node("Gather", {g.weight(embedding), positions.ids_N});
  x = times(x, style.scaled_embedding ? std::sqrt(static_cast<double>(c.width)) : c.embedding_multiplier);
  for (i64 layer = 0; layer < c.layers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer);
    const auto norm_if = [&](const char* wanted, const Value& of) { return wanted ? norm(of, name + "." + wanted) : of; };
    const auto attended = [&](const Value& y) { return decoder_attention(g, positions, y, name + ".self_attn", layer); };
    const auto added = [&](const Value& of, const Value& more, const char* after) {
      return add(g, of, times(norm_if(after, more), c.residual_multiplier));
    };
    const Value y = norm_if(style.norms.before_attention, x);
    const Value h = added(x, attended(y), style.norms.after_attention);
    const Value z = style.parallel ? y : norm_if(style.norms.before_mlp, h);
    x = added(h, decoder_feed_forward(g, z, name, layer), style.norms.after_mlp);
  }
  add_logits(g, positions, times(norm(x, "model.norm"), c.logit_multiplier / c.logit_divisor), embedding);
}

}  // namespace spillway::models::onnx
