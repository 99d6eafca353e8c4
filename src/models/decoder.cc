#include "models/decoder.h"

#include <cmath>

#include "models/decoder_layers.h"
#include "models/head.h"
#include "ops/elementwise/elementwise.h"

// Shape letters: B = batch size, T = positions, C = width.
namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

nn::RmsNorm norm(const ModelConfig& c, const std::string& name, DType dtype) {
  return {name, c.width, dtype, c.norm_eps, style_of(c).gain_offset};
}

// Rounds x to the model's type, as transformers does before it multiplies.
double rounded(double x, DType dtype) {
  if (dtype == DType::bf16) return widen(narrow<BFloat16>(static_cast<float>(x)));
  if (dtype == DType::f16) return widen(narrow<Float16>(static_cast<float>(x)));
  return x;
}

class DecoderEmbedding final : public nn::Module {
 public:
  DecoderEmbedding(const ModelConfig& c, DType dtype)
      : tokens_("model.embed_tokens", c.vocabulary, c.width, dtype, c.initializer_range, c.padding_row.value_or(-1)),
        scale_(style_of(c).scaled_embedding ? rounded(std::sqrt(static_cast<double>(c.width)), dtype) : 1) {}

  const nn::Embedding& tokens() const { return tokens_; }

  Variable forward(const Variable&, const Context& context) const override {
    const Variable x_BTC = tokens_(context.batch->tokens_BT, context);
    return scale_ == 1 ? x_BTC : ops::scale(x_BTC, scale_);
  }

  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(tokens_); }
  bool backward_reads_parameters() const override { return false; }

 private:
  nn::Embedding tokens_;
  double scale_;
};

// A block that computes h = x + attention(norm(x)) and then h + mlp(norm(h)), where mlp may be a mixture of experts.
template <class Mlp>
class DecoderBlock final : public nn::Module {
 public:
  DecoderBlock(const ModelConfig& c, const std::string& name, const char* mlp, i64 layer, DType dtype)
      : norm1_(norm(c, name + ".input_layernorm", dtype)),
        attention_(c, name + ".self_attn", layer, dtype),
        norm2_(norm(c, name + ".post_attention_layernorm", dtype)),
        mlp_(c, name + mlp, dtype) {}

  Variable forward(const Variable& x_BTC, const Context& context) const override {
    const Variable attended_BTC = attention_(x_BTC, norm1_(x_BTC, context), context);
    return mlp_(attended_BTC, norm2_(attended_BTC, context), context);
  }

  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(norm1_, attention_, norm2_, mlp_); }
  bool weight_gradients_read_parameters() const override { return false; }

 private:
  nn::RmsNorm norm1_;
  DecoderAttention attention_;
  nn::RmsNorm norm2_;
  Mlp mlp_;
};

// A block that computes h = x + norm(attention(x)) and then h + norm(mlp(h)). Attention and MLP may have another norm before them.
class NormAfterBlock final : public nn::Module {
 public:
  NormAfterBlock(const ModelConfig& c, const std::string& name, i64 layer, DType dtype)
      : attention_(c, name + ".self_attn", layer, dtype),
        after_attention_(norm(c, name + ".post_attention_layernorm", dtype)),
        mlp_(c, name + ".mlp", dtype),
        after_mlp_(norm(c, name + ".post_feedforward_layernorm", dtype)) {
    if (!style_of(c).norm_before) return;
    before_attention_ = norm(c, name + ".input_layernorm", dtype);
    before_mlp_ = norm(c, name + ".pre_feedforward_layernorm", dtype);
  }

  Variable forward(const Variable& x_BTC, const Context& context) const override {
    const Variable x = before_attention_ ? (*before_attention_)(x_BTC, context) : x_BTC;
    const Variable attended_BTC = ops::add(x_BTC, after_attention_(attention_({}, x, context), context));
    const Variable y = before_mlp_ ? (*before_mlp_)(attended_BTC, context) : attended_BTC;
    return ops::add(attended_BTC, after_mlp_(mlp_({}, y, context), context));
  }

  std::vector<nn::ParameterUse> parameters() const override {
    nn::ParameterList list;
    if (before_attention_) before_attention_->list(list);
    attention_.list(list);
    after_attention_.list(list);
    if (before_mlp_) before_mlp_->list(list);
    mlp_.list(list);
    after_mlp_.list(list);
    return list;
  }
  bool weight_gradients_read_parameters() const override { return false; }

 private:
  std::optional<nn::RmsNorm> before_attention_, before_mlp_;
  DecoderAttention attention_;
  nn::RmsNorm after_attention_;
  DecoderMlp mlp_;
  nn::RmsNorm after_mlp_;
};

std::unique_ptr<nn::Module> block(const ModelConfig& c, i64 layer, DType dtype) {
  const std::string name = "model.layers." + std::to_string(layer);
  if (style_of(c).norm_after) return std::make_unique<NormAfterBlock>(c, name, layer, dtype);
  if (!c.has_experts(layer)) return std::make_unique<DecoderBlock<DecoderMlp>>(c, name, ".mlp", layer, dtype);
  const char* experts = c.family == Family::mixtral ? ".block_sparse_moe" : ".mlp";
  return std::make_unique<DecoderBlock<DecoderExperts>>(c, name, experts, layer, dtype);
}

}  // namespace

nn::Sequential build_decoder(const ModelConfig& c, DType dtype) {
  nn::Sequential model;
  auto embedding = std::make_unique<DecoderEmbedding>(c, dtype);
  const nn::ParameterUse head = head_weight(c.tied_head, embedding->tokens(), c.initializer_range);
  model.push(std::move(embedding));
  for (i64 layer = 0; layer < c.layers; ++layer) model.push(block(c, layer, dtype));
  const bool evened_out = c.experts && c.experts->evened_out;
  if (evened_out) model.router_loss_experts = c.experts->count;
  model.push(std::make_unique<LanguageModelHead<nn::RmsNorm>>(norm(c, "model.norm", dtype), head, ops::LogitsMemory(), c.logit_softcap,
                                                              evened_out ? std::optional<RouterLoss>(c) : std::nullopt));
  return model;
}

}  // namespace spillway::models
