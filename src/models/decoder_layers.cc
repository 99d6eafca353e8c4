#include "models/decoder_layers.h"

#include <cmath>

#include "models/lora.h"
#include "nn/key_value_cache.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/layout/shape.h"
#include "ops/rows/norm.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/rope.h"
#include "tensor/create.h"

// Shape letters: B = batch size, T = positions, C = width, H = heads, D = head width.
namespace spillway::models {

using nn::Context;
using nn::Variable;

nn::Linear projection(const ModelConfig& c, const std::string& name, i64 in, i64 out, bool bias, DType dtype) {
  return {
      name, in, out, dtype, {bias, ops::WeightLayout::out_in, c.initializer_range, false, lora_of(c, name), c.base_weights, false, c.fp8}};
}

namespace {

std::optional<nn::Linear> projection_if(bool wanted, const ModelConfig& c, const std::string& name, i64 in, i64 out, bool bias,
                                        DType dtype) {
  if (!wanted) return {};
  return projection(c, name, in, out, bias, dtype);
}

std::optional<nn::RmsNorm> qk_norm(const ModelConfig& c, const std::string& name, i64 heads, i64 head_dim, DType dtype) {
  const DecoderStyle& style = style_of(c);
  if (style.qk_norm == DecoderStyle::QkNorm::none || !c.qk_normed) return {};
  const bool whole = style.qk_norm == DecoderStyle::QkNorm::whole;
  return nn::RmsNorm(name, whole ? heads * head_dim : head_dim, dtype, c.norm_eps, style.gain_offset);
}

// Splits the last axis into heads of the given width, if it is not split yet.
Variable heads(const Variable& x, i64 width) {
  if (x.shape().rank() == 4) return x;
  const Shape& s = x.shape();
  return ops::reshape(x, {s[0], s[1], s[2] / width, width});
}

// Returns the factor of attention's scores.
double score_scale(const ModelConfig& c) {
  if (c.rope_scaling && c.rope_scaling->mscale_all != 0 && c.rope_scaling->factor > 1) {
    const double more = 0.1 * c.rope_scaling->mscale_all * std::log(c.rope_scaling->factor) + 1;
    return more * more / std::sqrt(static_cast<double>(c.head_dim));
  }
  if (c.attention_multiplier != 0) return c.attention_multiplier;
  return 1 / std::sqrt(c.query_scalar > 0 ? c.query_scalar : static_cast<double>(c.head_dim));
}

bool values_are_keys(const ModelConfig& c, i64 layer) {
  const FullAttention* full = c.full_attention_of(layer);
  return full != nullptr && full->keys_are_values;
}

std::optional<Rotary> rotary_if_any(const ModelConfig& c, i64 layer) {
  if (!c.is_rotated(layer)) return {};
  return rotary_of(c, layer);
}

std::optional<LatentHeads> latent_heads_if_any(const ModelConfig& c, const std::string& name, DType dtype) {
  if (!c.latent) return {};
  return LatentHeads(c, name, dtype);
}

}  // namespace

LatentHeads::LatentHeads(const ModelConfig& c, const std::string& name, DType dtype)
    : heads_(c.heads),
      rotated_(c.rotary_dim),
      plain_(c.head_dim - c.rotary_dim),
      rank_(c.latent->key_rank),
      values_(c.latent->value_dim),
      q_(projection_if(c.latent->query_rank == 0, c, name + ".q_proj", c.width, c.heads * c.head_dim, false, dtype)),
      q_a_(projection_if(!q_, c, name + ".q_a_proj", c.width, c.latent->query_rank, c.attention_bias, dtype)),
      q_b_(projection_if(!q_, c, name + ".q_b_proj", c.latent->query_rank, c.heads * c.head_dim, false, dtype)),
      kv_a_(projection(c, name + ".kv_a_proj_with_mqa", c.width, rank_ + rotated_, c.attention_bias, dtype)),
      kv_b_(projection(c, name + ".kv_b_proj", rank_, c.heads * (plain_ + values_), false, dtype)),
      kv_a_norm_(name + ".kv_a_layernorm", rank_, dtype, c.latent->norm_eps) {
  if (q_a_) q_a_norm_.emplace(name + ".q_a_layernorm", c.latent->query_rank, dtype, c.latent->norm_eps);
}

AttentionHeads LatentHeads::operator()(const Variable& x_BTC, const Context& context) const {
  const Variable q_BTHD =
      heads(q_ ? (*q_)(x_BTC, context) : (*q_b_)((*q_a_norm_)((*q_a_)(x_BTC, context), context), context), plain_ + rotated_);
  const Variable both = kv_a_(x_BTC, context), latent = kv_a_norm_(ops::slice(both, 2, 0, rank_), context);
  const Variable rotated_BT1R = heads(ops::slice(both, 2, rank_, rank_ + rotated_), rotated_),
                 kv = heads(kv_b_(latent, context), plain_ + values_);
  const Variable rotated_BTHR = ops::add(rotated_BT1R, Variable(zeros({1, 1, heads_, 1}, rotated_BT1R.dtype(), "heads")));
  return {ops::concat({ops::slice(q_BTHD, 3, plain_, plain_ + rotated_), ops::slice(q_BTHD, 3, 0, plain_)}, 3),
          ops::concat({rotated_BTHR, ops::slice(kv, 3, 0, plain_)}, 3), ops::slice(kv, 3, plain_, plain_ + values_)};
}

void LatentHeads::list(nn::ParameterList& parameters) const {
  for (const auto* layer : {&q_, &q_a_, &q_b_}) {
    if (*layer) (*layer)->list(parameters);
  }
  if (q_a_norm_) q_a_norm_->list(parameters);
  kv_a_.list(parameters);
  kv_a_norm_.list(parameters);
  kv_b_.list(parameters);
}

DecoderAttention::DecoderAttention(const ModelConfig& c, const std::string& name, i64 layer, DType dtype)
    : head_dim_(c.head_dim_of(layer)),
      heads_(c.heads),
      kv_heads_(c.kv_heads_of(layer)),
      window_(c.is_windowed(layer) ? c.window : 0),
      shares_keys_(c.shares_keys(layer)),
      scale_(score_scale(c)),
      softcap_(c.attention_softcap),
      query_growth_(c.rope_scaling ? c.rope_scaling->query_growth : 0),
      rotary_(rotary_if_any(c, layer)),
      style_(style_of(c)),
      norm_eps_(c.norm_eps),
      latent_(latent_heads_if_any(c, name, dtype)),
      qkv_(projection_if(style_.fused_qkv, c, name + ".qkv_proj", c.width, (heads_ + 2 * kv_heads_) * head_dim_, c.attention_bias, dtype)),
      q_(projection_if(!latent_ && !style_.fused_qkv, c, name + ".q_proj", c.width, (style_.output_gate ? 2 : 1) * heads_ * head_dim_,
                       c.attention_bias, dtype)),
      k_(projection_if(!latent_ && !style_.fused_qkv && !shares_keys_, c, name + ".k_proj", c.width, kv_heads_ * head_dim_,
                       c.attention_bias, dtype)),
      v_(projection_if(!latent_ && !style_.fused_qkv && !shares_keys_ && !values_are_keys(c, layer), c, name + ".v_proj", c.width,
                       kv_heads_ * head_dim_, c.attention_bias, dtype)),
      o_(projection(c, name + "." + style_.attention_names.output, heads_ * (c.latent ? c.latent->value_dim : head_dim_), c.width,
                    c.output_bias, dtype)),
      q_norm_(qk_norm(c, name + "." + style_.attention_names.q_norm, heads_, head_dim_, dtype)),
      k_norm_(shares_keys_ ? std::nullopt : qk_norm(c, name + "." + style_.attention_names.k_norm, kv_heads_, head_dim_, dtype)),
      dropout_(name + ".attention_dropout", c.attention_dropout),
      library_(c.attention) {
  if (style_.sinks) sinks_H_ = nn::make_parameter(name + ".sinks", {heads_}, dtype, {nn::Initializer::Kind::normal, c.initializer_range});
}

Variable DecoderAttention::normed(const Variable& x, const std::optional<nn::RmsNorm>& norm, const Context& context) const {
  if (!norm) return heads(x, head_dim_);
  if (style_.qk_norm == DecoderStyle::QkNorm::whole) return heads((*norm)(x, context), head_dim_);
  return (*norm)(heads(x, head_dim_), context);
}

Variable DecoderAttention::values_of(const Variable& v) const {
  return style_.value_norm ? ops::rms_norm(v, Variable(ones({head_dim_}, v.dtype())), norm_eps_) : v;
}

AttentionHeads DecoderAttention::heads_of(const Variable& x_BTC, const Context& context) const {
  if (latent_) return (*latent_)(x_BTC, context);
  if (!style_.fused_qkv) {
    Variable raw_q = (*q_)(x_BTC, context), gate;
    if (style_.output_gate) {
      const Variable both = heads(raw_q, 2 * head_dim_);
      raw_q = ops::slice(both, 3, 0, head_dim_), gate = ops::slice(both, 3, head_dim_, 2 * head_dim_);
    }
    const Variable q = normed(raw_q, q_norm_, context);
    if (shares_keys_) return {q, {}, {}, gate};
    const Variable k = (*k_)(x_BTC, context), normed_k = normed(k, k_norm_, context);
    return {q, normed_k, values_of(heads(v_ ? (*v_)(x_BTC, context) : k, head_dim_)), gate};
  }
  const Variable all = heads((*qkv_)(x_BTC, context), head_dim_);
  const i64 keys = heads_ + kv_heads_;
  return {ops::slice(all, 2, 0, heads_), ops::slice(all, 2, heads_, keys), ops::slice(all, 2, keys, keys + kv_heads_), {}};
}

Variable DecoderAttention::rotated(const Variable& x, const Tensor& positions_BT, i64 length) const {
  if (!rotary_) return x;
  const std::vector<double>& frequencies = rotary_->frequencies_for(length);
  return style_.rope_pairs ? ops::rope_interleaved(x, positions_BT, frequencies, rotary_->scaling)
                           : ops::rope(x, positions_BT, frequencies, rotary_->scaling);
}

Variable DecoderAttention::attend(const Variable& residual_BTC, const Variable& x_BTC, const Context& context,
                                  nn::KeysAndValues* shared) const {
  const Tensor& positions_BT = context.batch->positions_BT;
  const auto [q, k, v_BTHD, gate_BTHD] = heads_of(x_BTC, context);
  const i64 length = context.cache ? context.cache->positions() : x_BTC.shape()[1];
  Variable q_BTHD = rotated(q, positions_BT, length);
  if (query_growth_ != 0) q_BTHD = ops::grown(q_BTHD, positions_BT, query_growth_, rotary_->original_positions);
  const nn::KeysAndValues own = shares_keys_ ? *shared : nn::KeysAndValues{rotated(k, positions_BT, length), v_BTHD};
  if (shared && !shares_keys_) *shared = own;
  const auto [keys_BTHD, values_BTHD] = nn::with_cached(context, own.k, own.v);
  ops::AttentionOptions options;
  options.scale = scale_;
  options.dropout = dropout_.share(context);
  options.key = dropout_.key(context);
  options.first_sample = context.batch->first_sample;
  options.library = library_;
  options.softcap = softcap_;
  options.positions_BT = nn::mask_positions(context);
  options.window = window_ < keys_BTHD.shape()[1] ? window_ : 0;  // a window that is wider than the keys hides nothing, so it is left out
  Variable mixed_BTHD = ops::attention(q_BTHD, keys_BTHD, values_BTHD, options, sinks_H_ ? context.use(*sinks_H_) : Variable());
  if (style_.output_gate) mixed_BTHD = ops::mul(mixed_BTHD, ops::sigmoid(gate_BTHD));
  const Shape& s = mixed_BTHD.shape();
  return o_(ops::reshape(mixed_BTHD, {s[0], s[1], s[2] * s[3]}), context, residual_BTC);
}

void DecoderAttention::list(nn::ParameterList& parameters) const {
  if (latent_) latent_->list(parameters);
  for (const auto* layer : {&qkv_, &q_, &k_, &v_}) {
    if (*layer) (*layer)->list(parameters);
  }
  o_.list(parameters);
  for (const auto* norm : {&q_norm_, &k_norm_}) {
    if (*norm) (*norm)->list(parameters);
  }
  if (sinks_H_) parameters.push_back({sinks_H_});
}

DecoderMlp::DecoderMlp(const ModelConfig& c, const std::string& name, i64 layer, DType dtype)
    : gelu_gate_(style_of(c).gelu_gate),
      gate_up_(projection_if(style_of(c).fused_gate, c, name + "." + style_of(c).mlp_names.gate_up, c.width, 2 * c.mlp_width_of(layer),
                             c.mlp_bias, dtype)),
      gate_(projection_if(!gate_up_, c, name + "." + style_of(c).mlp_names.gate, c.width, c.mlp_width_of(layer), c.mlp_bias, dtype)),
      up_(projection_if(!gate_up_, c, name + "." + style_of(c).mlp_names.up, c.width, c.mlp_width_of(layer), c.mlp_bias, dtype)),
      down_(projection(c, name + "." + style_of(c).mlp_names.down, c.mlp_width_of(layer), c.width, c.mlp_bias, dtype)) {}

Variable DecoderMlp::operator()(const Variable& residual_BTC, const Variable& x_BTC, const Context& context) const {
  const Variable both = gate_up_ ? (*gate_up_)(x_BTC, context) : Variable();
  const i64 width = gate_up_ ? both.shape()[2] / 2 : 0;
  const Variable gate = gate_up_ ? ops::slice(both, 2, 0, width) : (*gate_)(x_BTC, context);
  const Variable up = gate_up_ ? ops::slice(both, 2, width, 2 * width) : (*up_)(x_BTC, context);
  return down_(gelu_gate_ ? ops::geglu(gate, up) : ops::swiglu(gate, up), context, residual_BTC);
}

void DecoderMlp::list(nn::ParameterList& parameters) const {
  for (const auto* layer : {&gate_up_, &gate_, &up_}) {
    if (*layer) (*layer)->list(parameters);
  }
  down_.list(parameters);
}

}  // namespace spillway::models
