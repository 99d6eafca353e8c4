#include "models/gpt2.h"

#include <cmath>

#include "models/head.h"
#include "models/lora.h"
#include "nn/key_value_cache.h"
#include "ops/elementwise/elementwise.h"
#include "ops/sequence/attention.h"

// Shape letters: B = batch size, T = positions, C = width.
namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

// Returns a Conv1D layer with weights [in, out]. If the layer's output is added to the residual
// stream, its initial weights are smaller, scaled by 1/sqrt(number of such additions).
nn::Linear projection(const ModelConfig& c, const std::string& name, i64 in, i64 out, DType dtype, bool onto_residual = false) {
  const double std = onto_residual ? c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.layers)) : c.initializer_range;
  return {name, in, out, dtype, {true, ops::WeightLayout::in_out, std, false, lora_of(c, name), c.base_weights, false, c.fp8}};
}

class Gpt2Embedding final : public nn::Module {
 public:
  Gpt2Embedding(const ModelConfig& c, DType dtype)
      : tokens_("transformer.wte", c.vocabulary, c.width, dtype, c.initializer_range),
        positions_("transformer.wpe", c.positions, c.width, dtype, c.initializer_range),
        dropout_("transformer.drop", c.embedding_dropout) {}

  const nn::Embedding& tokens() const { return tokens_; }

  Variable forward(const Variable&, const Context& context) const override {
    const Variable tokens = tokens_(context.batch->tokens_BT, context);
    const Variable positions = positions_(context.batch->positions_BT, context);
    return dropout_(ops::add(tokens, positions), context);
  }

  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(tokens_, positions_); }
  bool backward_reads_parameters() const override { return false; }

 private:
  nn::Embedding tokens_, positions_;
  nn::Dropout dropout_;
};

class Gpt2Attention {
 public:
  Gpt2Attention(const ModelConfig& c, const std::string& name, i64 layer, DType dtype)
      : heads_(c.heads),
        qkv_(projection(c, name + ".c_attn", c.width, 3 * c.width, dtype)),
        out_(projection(c, name + ".c_proj", c.width, c.width, dtype, true)),
        probability_dropout_(name + ".attn_dropout", c.attention_dropout),
        residual_dropout_(name + ".resid_dropout", c.residual_dropout),
        library_(c.attention) {
    if (c.scale_attention) scale_ /= std::sqrt(static_cast<double>(c.head_dim));
    if (c.scale_attention_by_layer) scale_ /= static_cast<double>(layer + 1);
  }

  // Returns the sum of the residual and the attention of x.
  Variable operator()(const Variable& residual_BTC, const Variable& x_BTC, const Context& context) const {
    ops::AttentionOptions options;
    options.scale = scale_;
    options.dropout = probability_dropout_.share(context);
    options.key = probability_dropout_.key(context);
    options.first_sample = context.batch->first_sample;
    options.library = library_;
    options.positions_BT = nn::mask_positions(context);
    const Variable qkv = qkv_(x_BTC, context);
    const Variable mixed = context.cache ? with_cache(qkv, context, options) : ops::attention_packed(qkv, heads_, options);
    if (residual_dropout_.share(context) == 0) return out_(mixed, context, residual_BTC);
    return ops::add(residual_BTC, residual_dropout_(out_(mixed, context), context));
  }

  void list(nn::ParameterList& parameters) const {
    qkv_.list(parameters);
    out_.list(parameters);
  }

 private:
  Variable with_cache(const Variable& qkv, const Context& context, const ops::AttentionOptions& options) const {
    const Shape& s = qkv.shape();
    const Variable all = ops::reshape(qkv, {s[0], s[1], 3 * heads_, s[2] / (3 * heads_)});
    const auto third = [&](i64 n) { return ops::slice(all, 2, n * heads_, (n + 1) * heads_); };
    const auto [k, v] = nn::with_cached(context, third(1), third(2));
    return ops::reshape(ops::attention(third(0), k, v, options), {s[0], s[1], s[2] / 3});
  }

  i64 heads_;
  double scale_ = 1;
  nn::Linear qkv_, out_;
  nn::Dropout probability_dropout_, residual_dropout_;
  kernels::AttentionLibrary library_;
};

class Gpt2Mlp {
 public:
  Gpt2Mlp(const ModelConfig& c, const std::string& name, DType dtype)
      : activation_(c.activation),
        up_(projection(c, name + ".c_fc", c.width, c.mlp_width, dtype)),
        down_(projection(c, name + ".c_proj", c.mlp_width, c.width, dtype, true)),
        dropout_(name + ".dropout", c.residual_dropout) {}

  Variable operator()(const Variable& residual_BTC, const Variable& x_BTC, const Context& context) const {
    if (dropout_.share(context) == 0) return mlp(x_BTC, context, residual_BTC);
    return ops::add(residual_BTC, dropout_(mlp(x_BTC, context, {}), context));
  }

  void list(nn::ParameterList& parameters) const {
    up_.list(parameters);
    down_.list(parameters);
  }

 private:
  Variable mlp(const Variable& x, const Context& context, const Variable& residual) const {
    const bool within = activation_ == Activation::gelu_tanh && !up_.has_lora() && !down_.has_lora() && up_.is_plain();
    if (within) return ops::gelu_mlp(x, up_.weights(context), down_.weights(context), residual);
    return down_(activate(up_(x, context)), context, residual);
  }
  Variable activate(const Variable& x) const {
    switch (activation_) {
      case Activation::gelu_tanh:
        return ops::gelu_tanh(x);
      case Activation::gelu_erf:
        return ops::gelu_erf(x);
      case Activation::relu:
        return ops::relu(x);
    }
    throw Error(ErrorCode::bug, "[gpt2] expected a known activation function, got another");
  }

  Activation activation_;
  nn::Linear up_, down_;
  nn::Dropout dropout_;
};

class Gpt2Block final : public nn::Module {
 public:
  Gpt2Block(const ModelConfig& c, const std::string& name, i64 layer, DType dtype)
      : norm1_(name + ".ln_1", c.width, dtype, c.norm_eps),
        attention_(c, name + ".attn", layer, dtype),
        norm2_(name + ".ln_2", c.width, dtype, c.norm_eps),
        mlp_(c, name + ".mlp", dtype) {}

  Variable forward(const Variable& x_BTC, const Context& context) const override {
    const Variable attended_BTC = attention_(x_BTC, norm1_(x_BTC, context), context);
    return mlp_(attended_BTC, norm2_(attended_BTC, context), context);
  }

  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(norm1_, attention_, norm2_, mlp_); }
  bool weight_gradients_read_parameters() const override { return false; }

 private:
  nn::LayerNorm norm1_;
  Gpt2Attention attention_;
  nn::LayerNorm norm2_;
  Gpt2Mlp mlp_;
};

}  // namespace

nn::Sequential build_gpt2(const ModelConfig& c, DType dtype) {
  nn::Sequential model;
  auto embedding = std::make_unique<Gpt2Embedding>(c, dtype);
  const nn::ParameterUse head = head_weight(c.tied_head, embedding->tokens(), c.initializer_range);
  model.push(std::move(embedding));
  for (i64 layer = 0; layer < c.layers; ++layer) {
    model.push(std::make_unique<Gpt2Block>(c, "transformer.h." + std::to_string(layer), layer, dtype));
  }
  model.push(std::make_unique<LanguageModelHead<nn::LayerNorm>>(nn::LayerNorm("transformer.ln_f", c.width, dtype, c.norm_eps), head));
  return model;
}

}  // namespace spillway::models
