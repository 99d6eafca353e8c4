#include "models/decoder.h"

#include <cmath>

#include "models/decoder_layers.h"
#include "models/decoder_mixers.h"
#include "models/decoder_stream.h"
#include "models/experts_beside.h"
#include "models/head.h"
#include "models/layer_input.h"
#include "ops/elementwise/elementwise.h"

// Shape letters: B = batch size, T = positions, C = width.
namespace spillway::models {
namespace {

using nn::Context;
using nn::Variable;

// A norm of the family: an RMS norm, or a layer norm without bias.
class DecoderNorm {
 public:
  DecoderNorm(const ModelConfig& c, const std::string& name, DType dtype) {
    const DecoderStyle& style = style_of(c);
    if (style.layer_norm) {
      centred_.emplace(name, c.width, dtype, c.norm_eps, false);
    } else {
      rms_.emplace(name, c.width, dtype, c.norm_eps, style.gain_offset);
    }
  }
  Variable operator()(const Variable& x, const Context& context) const { return rms_ ? (*rms_)(x, context) : (*centred_)(x, context); }
  void list(nn::ParameterList& parameters) const { rms_ ? rms_->list(parameters) : centred_->list(parameters); }

 private:
  std::optional<nn::RmsNorm> rms_;
  std::optional<nn::LayerNorm> centred_;
};

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
        scale_(style_of(c).scaled_embedding ? rounded(std::sqrt(static_cast<double>(c.width)), dtype) : c.embedding_multiplier),
        stream_(c) {}

  const nn::Embedding& tokens() const { return tokens_; }

  Variable forward(const Variable&, const Context& context) const override {
    const Variable looked_up_BTC = tokens_(context.batch->tokens_BT, context);
    const Variable x_BTC = scale_ == 1 ? looked_up_BTC : ops::scale(looked_up_BTC, scale_);
    return stream_.joined({x_BTC, x_BTC, {}}, 0);
  }

  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(tokens_); }
  bool backward_reads_parameters() const override { return false; }

 private:
  nn::Embedding tokens_;
  double scale_;
  DecoderStream stream_;
};

std::unique_ptr<BlockPart> mixer(const ModelConfig& c, const std::string& name, i64 layer, DType dtype) {
  switch (c.mixer_of(layer)) {
    case Mixer::mamba2:
      return std::make_unique<Mamba2>(c, name + ".mamba", dtype);
    case Mixer::short_conv:
      return std::make_unique<GatedShortConv>(c, name + ".conv", dtype);
    case Mixer::delta_net:
      return std::make_unique<GatedDeltaNet>(c, name + ".linear_attn", dtype);
    default:
      return std::make_unique<DecoderAttention>(c, name + "." + style_of(c).attention_names.attention, layer, dtype);
  }
}

bool is_mixture(const ModelConfig& c, i64 layer) { return c.has_experts(layer) && !c.experts->beside; }

std::string mlp_name(const ModelConfig& c, i64 layer) {
  return is_mixture(c, layer) ? style_of(c).experts.mixture : style_of(c).mlp_names.mlp;
}

std::unique_ptr<BlockPart> mlp(const ModelConfig& c, const std::string& name, i64 layer, DType dtype) {
  if (is_mixture(c, layer)) return std::make_unique<DecoderExperts>(c, name, layer, dtype);
  return std::make_unique<DecoderMlp>(c, name + "." + mlp_name(c, layer), layer, dtype);
}

// A block that adds a mixer of positions (attention, mostly) and then an MLP (or a mixture of experts) to its input, each with a norm of
// its input, of its output, or both. In a parallel block both read the same normed input.
class DecoderBlock final : public nn::Module {
 public:
  /// `projection_norm` is that of layer_input.h, or null.
  DecoderBlock(const ModelConfig& c, const std::string& name, i64 layer, const std::shared_ptr<nn::Parameter>& projection_norm, DType dtype)
      : layer_(layer),
        stream_(c),
        before_attention_(norm_if(style_of(c).norms.before_attention, c, name, dtype)),
        mixer_(mixer(c, name, layer, dtype)),
        after_attention_(norm_if(style_of(c).norms.after_attention, c, name, dtype)),
        before_mlp_(norm_if(style_of(c).norms.before_mlp, c, name, dtype)),
        mlp_(mlp(c, name, layer, dtype)),
        after_mlp_(norm_if(style_of(c).norms.after_mlp, c, name, dtype)),
        parallel_(style_of(c).parallel),
        multiplier_(c.residual_multiplier),
        attention_dropout_(name + ".self_attn.residual_dropout", c.residual_dropout),
        mlp_dropout_(name + "." + mlp_name(c, layer) + ".residual_dropout", c.residual_dropout) {
    if (c.experts && c.experts->beside) beside_.emplace(c, name, dtype);
    if (projection_norm) layer_input_.emplace(c, name, layer, projection_norm, dtype);
    windowed_ = c.is_windowed(layer), shares_keys_ = c.shares_keys(layer);
    if (!style_of(c).layer_scalar) return;
    scalar_ = nn::make_parameter(name + ".layer_scalar", {1}, dtype, {nn::Initializer::Kind::ones});
    scalar_->frozen = true;
  }

  Variable forward(const Variable& input, const Context& context) const override {
    Travelling parts = stream_.split(input, layer_);
    const Variable x_BTC = parts.x_BTC, normed = before_attention_ ? (*before_attention_)(x_BTC, context) : x_BTC;
    if (parallel_) return (*mlp_)((*mixer_)(x_BTC, normed, context), normed, context);
    nn::KeysAndValues* const keys = shares_keys_ || stream_.keeps_keys(layer_) ? &parts.shared[windowed_ ? 1 : 0] : nullptr;
    const auto mix = [&](const Variable& residual, const Variable& in, const Context& to) {
      return keys ? static_cast<const DecoderAttention&>(*mixer_).attend(residual, in, to, keys) : (*mixer_)(residual, in, to);
    };
    const Variable attended = added(x_BTC, normed, mix, after_attention_, attention_dropout_, context);
    const Variable z = before_mlp_ ? (*before_mlp_)(attended, context) : attended;
    const auto fed = [&](const Variable& residual, const Variable& in, const Context& to) {
      return beside_ ? (*beside_)((*mlp_)({}, in, to), attended, to) : (*mlp_)(residual, in, to);
    };
    Variable y = added(attended, z, fed, after_mlp_, mlp_dropout_, context);
    if (layer_input_) y = (*layer_input_)(y, parts.embedded_BTC, context);
    parts.x_BTC = scalar_ ? ops::mul(y, context.use(*scalar_)) : y;
    return stream_.joined(parts, layer_ + 1);
  }

  std::vector<nn::ParameterUse> parameters() const override {
    nn::ParameterList list;
    if (before_attention_) before_attention_->list(list);
    mixer_->list(list);
    if (after_attention_) after_attention_->list(list);
    if (before_mlp_) before_mlp_->list(list);
    mlp_->list(list);
    if (beside_) beside_->list(list);
    if (after_mlp_) after_mlp_->list(list);
    if (layer_input_) layer_input_->list(list);
    if (scalar_) list.push_back({scalar_});
    return list;
  }
  bool weight_gradients_read_parameters() const override {
    return mixer_->weight_gradients_read_parameters() || mlp_->weight_gradients_read_parameters();
  }

 private:
  static std::optional<DecoderNorm> norm_if(const char* wanted, const ModelConfig& c, const std::string& name, DType dtype) {
    if (wanted == nullptr) return {};
    return DecoderNorm(c, name + "." + wanted, dtype);
  }

  // Returns x + multiplier * dropout(norm(part(y))). A part adds the residual itself where nothing lies between.
  template <class Part>
  Variable added(const Variable& x, const Variable& y, const Part& part, const std::optional<DecoderNorm>& after,
                 const nn::Dropout& dropout, const Context& context) const {
    const bool drops = dropout.share(context) > 0;
    if (!after && !drops && multiplier_ == 1) return part(x, y, context);
    Variable more = part({}, y, context);
    if (after) more = (*after)(more, context);
    if (drops) more = dropout(more, context);
    return ops::add(x, multiplier_ == 1 ? more : ops::scale(more, multiplier_));
  }

  i64 layer_;
  DecoderStream stream_;
  std::optional<DecoderNorm> before_attention_;
  std::unique_ptr<BlockPart> mixer_;
  std::optional<DecoderNorm> after_attention_, before_mlp_;
  std::unique_ptr<BlockPart> mlp_;
  std::optional<ExpertsBeside> beside_;
  std::optional<DecoderNorm> after_mlp_;
  bool parallel_;
  double multiplier_;
  nn::Dropout attention_dropout_, mlp_dropout_;
  std::optional<LayerInput> layer_input_;
  std::shared_ptr<nn::Parameter> scalar_;  // null if the block has none
  bool windowed_ = false, shares_keys_ = false;
};

}  // namespace

nn::Sequential build_decoder(const ModelConfig& c, DType dtype) {
  nn::Sequential model;
  auto embedding = std::make_unique<DecoderEmbedding>(c, dtype);
  const nn::ParameterUse head = head_weight(c.tied_head, embedding->tokens(), c.initializer_range);
  model.push(std::move(embedding));
  std::shared_ptr<nn::Parameter> projection_norm;  // which all layers share
  if (c.layer_embedding > 0) {
    projection_norm =
        nn::make_parameter("model.per_layer_projection_norm.weight", {c.layer_embedding}, dtype, {nn::Initializer::Kind::ones});
  }
  for (i64 layer = 0; layer < c.layers; ++layer) {
    model.push(std::make_unique<DecoderBlock>(c, "model.layers." + std::to_string(layer), layer, projection_norm, dtype));
  }
  const bool evened_out = c.experts && c.experts->evened_out;
  if (evened_out) model.router_loss_experts = c.experts->count;
  LanguageModelHead<DecoderNorm>::Options options;
  options.multiplier = c.logit_multiplier / c.logit_divisor, options.softcap = c.logit_softcap;
  if (evened_out) options.router_loss = RouterLoss(c);
  model.push(std::make_unique<LanguageModelHead<DecoderNorm>>(DecoderNorm(c, style_of(c).norms.last, dtype), head, options));
  return model;
}

}  // namespace spillway::models
