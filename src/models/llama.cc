#include "models/llama.h"

#include <cmath>
#include <numbers>

#include "models/head.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

// Legend: B = rows, T = positions, C = width, H = heads, D = head width.
namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

nn::Linear projection(const ModelConfig& c, const std::string& name, i64 in, i64 out, bool bias, DType dtype) {
  return {name, in, out, dtype, {bias, ops::WeightLayout::out_in, c.initializer_range}};
}

class LlamaEmbedding final : public nn::Module {
 public:
  LlamaEmbedding(const ModelConfig& c, DType dtype) : tokens_("model.embed_tokens", c.vocabulary, c.width, dtype, c.initializer_range) {}

  const nn::Embedding& tokens() const { return tokens_; }

  Variable forward(const Variable&, const Context& context) const override { return tokens_(context.batch->tokens_BT, context); }

  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(tokens_); }
  bool backward_reads_parameters() const override { return false; }

 private:
  nn::Embedding tokens_;
};

class LlamaAttention {
 public:
  LlamaAttention(const ModelConfig& c, const std::string& name, DType dtype)
      : head_dim_(c.head_dim),
        inverse_frequencies_(rope_inverse_frequencies(c)),
        q_(projection(c, name + ".q_proj", c.width, c.heads * c.head_dim, c.attention_bias, dtype)),
        k_(projection(c, name + ".k_proj", c.width, c.kv_heads * c.head_dim, c.attention_bias, dtype)),
        v_(projection(c, name + ".v_proj", c.width, c.kv_heads * c.head_dim, c.attention_bias, dtype)),
        o_(projection(c, name + ".o_proj", c.heads * c.head_dim, c.width, c.attention_bias, dtype)),
        dropout_(name + ".attention_dropout", c.attention_dropout) {}

  Variable operator()(const Variable& x_BTC, const Context& context) const {
    const Tensor& positions_BT = context.batch->positions_BT;
    const Variable q_BTHD = ops::rope(heads(q_(x_BTC, context)), positions_BT, inverse_frequencies_);
    const Variable k_BTHD = ops::rope(heads(k_(x_BTC, context)), positions_BT, inverse_frequencies_);
    ops::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(head_dim_));
    options.dropout = dropout_.share(context);
    options.key = dropout_.key(context);
    options.first_sample = context.batch->first_sample;
    const Variable mixed_BTHD = ops::attention(q_BTHD, k_BTHD, heads(v_(x_BTC, context)), options);
    const Shape& s = mixed_BTHD.shape();
    return o_(ops::reshape(mixed_BTHD, {s[0], s[1], s[2] * s[3]}), context);
  }

  void list(nn::ParameterList& parameters) const {
    for (const nn::Linear* layer : {&q_, &k_, &v_, &o_}) layer->list(parameters);
  }

 private:
  Variable heads(const Variable& x) const {
    const Shape& s = x.shape();
    return ops::reshape(x, {s[0], s[1], s[2] / head_dim_, head_dim_});
  }

  i64 head_dim_;
  std::vector<double> inverse_frequencies_;
  nn::Linear q_, k_, v_, o_;
  nn::Dropout dropout_;
};

class LlamaMlp {
 public:
  LlamaMlp(const ModelConfig& c, const std::string& name, DType dtype)
      : gate_(projection(c, name + ".gate_proj", c.width, c.mlp_width, c.mlp_bias, dtype)),
        up_(projection(c, name + ".up_proj", c.width, c.mlp_width, c.mlp_bias, dtype)),
        down_(projection(c, name + ".down_proj", c.mlp_width, c.width, c.mlp_bias, dtype)) {}

  Variable operator()(const Variable& x_BTC, const Context& context) const {
    return down_(ops::swiglu(gate_(x_BTC, context), up_(x_BTC, context)), context);
  }

  void list(nn::ParameterList& parameters) const {
    for (const nn::Linear* layer : {&gate_, &up_, &down_}) layer->list(parameters);
  }

 private:
  nn::Linear gate_, up_, down_;
};

class LlamaBlock final : public nn::Module {
 public:
  LlamaBlock(const ModelConfig& c, const std::string& name, DType dtype)
      : norm1_(name + ".input_layernorm", c.width, dtype, c.norm_eps),
        attention_(c, name + ".self_attn", dtype),
        norm2_(name + ".post_attention_layernorm", c.width, dtype, c.norm_eps),
        mlp_(c, name + ".mlp", dtype) {}

  Variable forward(const Variable& x_BTC, const Context& context) const override {
    const Variable attended = ops::add(x_BTC, attention_(norm1_(x_BTC, context), context));
    return ops::add(attended, mlp_(norm2_(attended, context), context));
  }

  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(norm1_, attention_, norm2_, mlp_); }
  bool weight_gradients_read_parameters() const override { return false; }

 private:
  nn::RmsNorm norm1_;
  LlamaAttention attention_;
  nn::RmsNorm norm2_;
  LlamaMlp mlp_;
};

double scaled(double frequency, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency, original = static_cast<double>(s.original_positions);
  if (wavelength < original / s.high_freq_factor) return frequency;
  if (wavelength > original / s.low_freq_factor) return frequency / s.factor;
  const double keep = (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - keep) * frequency / s.factor + keep * frequency;
}

}  // namespace

std::vector<double> rope_inverse_frequencies(const ModelConfig& c) {
  std::vector<double> frequencies;
  for (i64 i = 0; i < c.head_dim; i += 2) {
    const double frequency = 1 / std::pow(c.rope_theta, static_cast<double>(i) / static_cast<double>(c.head_dim));
    frequencies.push_back(c.rope_scaling ? scaled(frequency, *c.rope_scaling) : frequency);
  }
  return frequencies;
}

nn::Sequential build_llama(const ModelConfig& c, DType dtype) {
  nn::Sequential model;
  auto embedding = std::make_unique<LlamaEmbedding>(c, dtype);
  const nn::ParameterUse head = head_weight(c.tied_head, embedding->tokens(), c.initializer_range);
  model.push(std::move(embedding));
  for (i64 layer = 0; layer < c.layers; ++layer) {
    model.push(std::make_unique<LlamaBlock>(c, "model.layers." + std::to_string(layer), dtype));
  }
  model.push(std::make_unique<LanguageModelHead<nn::RmsNorm>>(nn::RmsNorm("model.norm", c.width, dtype, c.norm_eps), head));
  return model;
}

}  // namespace spillway::models
