#include "models/decoder_mixers.h"

#include <cmath>
#include <numeric>

#include "models/decoder_layers.h"
#include "nn/key_value_cache.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/layout/shape.h"
#include "ops/rows/gated_norm.h"
#include "ops/sequence/delta_rule.h"
#include "ops/sequence/selective_scan.h"
#include "ops/sequence/short_conv.h"

// Shape letters: B = batch size, T = positions, C = width, H = heads, P = elements of a head, G = groups, N = elements of a state per
// element of a head.
namespace spillway::models {

using nn::Context;
using nn::Variable;

namespace {

constexpr nn::Initializer kZeros{nn::Initializer::Kind::zeros}, kOnes{nn::Initializer::Kind::ones};

i64 inner(const Mamba2Config& c) { return c.heads * c.head_dim; }
i64 convolved(const Mamba2Config& c) { return inner(c) + 2 * c.groups * c.state; }

// Returns ln(1), ln(2), … as initial values: the decay of head h begins as h + 1 per unit of time.
std::shared_ptr<nn::Parameter> decays(const std::string& name, i64 heads, DType dtype) {
  auto parameter = nn::make_parameter(name, {heads}, dtype, kZeros);
  parameter->given = [](i64 begin, std::span<double> out) {
    for (double& value : out) value = std::log(static_cast<double>(++begin));
  };
  return parameter;
}

// Returns the logarithms of rates that are spread evenly over (0.01, 16), with which the heads of Gated DeltaNet begin.
std::shared_ptr<nn::Parameter> spread_decays(const std::string& name, i64 heads, DType dtype) {
  auto parameter = nn::make_parameter(name, {heads}, dtype, kZeros);
  parameter->given = [heads](i64 begin, std::span<double> out) {
    for (double& value : out) value = std::log(0.01 + 15.99 * (static_cast<double>(begin++) + 0.5) / static_cast<double>(heads));
  };
  return parameter;
}

i64 keys(const DeltaNetConfig& c) { return c.key_heads * c.key_dim; }
i64 values(const DeltaNetConfig& c) { return c.value_heads * c.value_dim; }

}  // namespace

CausalConv::CausalConv(const std::string& name, i64 channels, i64 taps, bool bias, double std, DType dtype)
    : weight_(nn::make_parameter(name + ".weight", {channels, 1, taps}, dtype, {nn::Initializer::Kind::normal, std})),
      bias_(bias ? nn::make_parameter(name + ".bias", {channels}, dtype, kZeros) : nullptr) {}

Variable CausalConv::operator()(const Variable& x, bool silu, const Context& context) const {
  ops::ShortConvOptions options;
  options.silu = silu;
  options.positions_BT = nn::document_positions(context);
  if (context.cache) {
    const Shape kept{x.shape()[0], weight_->shape[2] - 1, x.shape()[2]};
    options.first_inputs = context.cache->state(context.block, 0, kept, x.dtype());
    options.last_inputs = empty(kept, x.dtype(), "last inputs of a convolution");
  }
  const Variable y = ops::short_conv(x, context.use(*weight_), bias_ ? context.use(*bias_) : Variable(), options);
  if (context.cache) context.cache->keep_state(context.block, 0, options.last_inputs, x.shape()[1]);
  return y;
}

void CausalConv::list(nn::ParameterList& parameters) const {
  parameters.push_back({weight_});
  if (bias_) parameters.push_back({bias_});
}

Mamba2::Mamba2(const ModelConfig& c, const std::string& name, DType dtype)
    : config_(c.mamba2),
      norm_eps_(c.norm_eps),
      in_(projection(c, name + ".in_proj", c.width, inner(config_) + convolved(config_) + config_.heads, config_.bias, dtype)),
      conv_(name + ".conv1d", convolved(config_), config_.taps, config_.conv_bias, c.initializer_range, dtype),
      dt_bias_(nn::make_parameter(name + ".dt_bias", {config_.heads}, dtype, kOnes)),
      a_log_(decays(name + ".A_log", config_.heads, dtype)),
      d_(nn::make_parameter(name + ".D", {config_.heads}, dtype, kOnes)),
      norm_(nn::make_parameter(name + ".norm.weight", {inner(config_)}, dtype, kOnes)),
      out_(projection(c, name + ".out_proj", inner(config_), c.width, config_.bias, dtype)) {}

Variable Mamba2::scanned(const Variable& xbc, const Variable& dt, const Context& context) const {
  ops::SelectiveScanOptions options;
  options.groups = config_.groups, options.state = config_.state;
  options.smallest_dt = config_.smallest_dt, options.largest_dt = config_.largest_dt;
  options.positions_BT = nn::document_positions(context);
  if (context.cache) {
    const Shape states{xbc.shape()[0], config_.heads, config_.state, config_.head_dim};
    const DType wide = wide_dtype(xbc.dtype());
    options.first_state_BHNP = context.cache->state(context.block, 1, states, wide);
    options.last_state_BHNP = empty(states, wide, "states of a scan");
  }
  const Variable y = ops::selective_scan(xbc, dt, context.use(*a_log_), context.use(*dt_bias_), context.use(*d_), options);
  if (context.cache) context.cache->keep_state(context.block, 1, options.last_state_BHNP, xbc.shape()[1]);
  return y;
}

Variable Mamba2::operator()(const Variable& residual_BTC, const Variable& x_BTC, const Context& context) const {
  const std::vector<Variable> parts = ops::split(in_(x_BTC, context), {inner(config_), convolved(config_), config_.heads}, 2);
  const Variable y = scanned(conv_(parts[1], true, context), parts[2], context);
  return out_(ops::gated_rms_norm(y, parts[0], context.use(*norm_), norm_eps_, config_.groups), context, residual_BTC);
}

void Mamba2::list(nn::ParameterList& parameters) const {
  in_.list(parameters);
  conv_.list(parameters);
  for (const auto& parameter : {dt_bias_, a_log_, d_, norm_}) parameters.push_back({parameter});
  out_.list(parameters);
}

GatedShortConv::GatedShortConv(const ModelConfig& c, const std::string& name, DType dtype)
    : in_(projection(c, name + ".in_proj", c.width, 3 * c.width, c.short_conv.bias, dtype)),
      conv_(name + ".conv", c.width, c.short_conv.taps, c.short_conv.bias, c.initializer_range, dtype),
      out_(projection(c, name + ".out_proj", c.width, c.width, c.short_conv.bias, dtype)) {}

Variable GatedShortConv::operator()(const Variable& residual_BTC, const Variable& x_BTC, const Context& context) const {
  const i64 width = x_BTC.shape()[2];
  const std::vector<Variable> parts = ops::split(in_(x_BTC, context), {width, width, width}, 2);
  const Variable mixed = conv_(ops::mul(parts[0], parts[2]), false, context);
  return out_(ops::mul(parts[1], mixed), context, residual_BTC);
}

void GatedShortConv::list(nn::ParameterList& parameters) const {
  in_.list(parameters);
  conv_.list(parameters);
  out_.list(parameters);
}

GatedDeltaNet::GatedDeltaNet(const ModelConfig& c, const std::string& name, DType dtype)
    : config_(c.delta_net),
      conv_(name + ".conv1d", 2 * keys(config_) + values(config_), config_.taps, false, c.initializer_range, dtype),
      dt_bias_(nn::make_parameter(name + ".dt_bias", {config_.value_heads}, dtype, kOnes)),
      a_log_(spread_decays(name + ".A_log", config_.value_heads, dtype)),
      norm_(name + ".norm", config_.value_dim, dtype, c.norm_eps),
      out_(projection(c, name + ".out_proj", values(config_), c.width, false, dtype)) {
  const auto of = [&](const char* what, i64 outputs) { return projection(c, name + ".in_proj_" + what, c.width, outputs, false, dtype); };
  if (config_.by_key_head) {
    qkvz_.emplace(of("qkvz", 2 * keys(config_) + 2 * values(config_)));
    ba_.emplace(of("ba", 2 * config_.value_heads));
  } else {
    qkv_.emplace(of("qkv", 2 * keys(config_) + values(config_)));
    z_.emplace(of("z", values(config_)));
    b_.emplace(of("b", config_.value_heads));
    a_.emplace(of("a", config_.value_heads));
  }
}

GatedDeltaNet::Projected GatedDeltaNet::projected(const Variable& x_BTC, const Context& context) const {
  if (!config_.by_key_head) return {(*qkv_)(x_BTC, context), (*z_)(x_BTC, context), (*b_)(x_BTC, context), (*a_)(x_BTC, context)};
  const Shape& s = x_BTC.shape();
  // Returns the parts of a projection, each with those of all key heads one after the other. `of_key_head` has the widths of one key head.
  const auto parts = [&](const nn::Linear& of, const std::vector<i64>& of_key_head) {
    const i64 width = std::accumulate(of_key_head.begin(), of_key_head.end(), i64{0});
    std::vector<Variable> all = ops::split(ops::reshape(of(x_BTC, context), {s[0], s[1], config_.key_heads, width}), of_key_head, 3);
    for (size_t i = 0; i < all.size(); ++i) all[i] = ops::reshape(all[i], {s[0], s[1], config_.key_heads * of_key_head[i]});
    return all;
  };
  const i64 each = config_.value_heads / config_.key_heads, value = each * config_.value_dim;
  const std::vector<Variable> qkvz = parts(*qkvz_, {config_.key_dim, config_.key_dim, value, value}), ba = parts(*ba_, {each, each});
  return {ops::concat({qkvz[0], qkvz[1], qkvz[2]}, 2), qkvz[3], ba[0], ba[1]};
}

Variable GatedDeltaNet::ruled(const Variable& qkv, const Projected& x, const Context& context) const {
  ops::DeltaRuleOptions options;
  options.key_heads = config_.key_heads, options.key_elems = config_.key_dim;
  options.positions_BT = nn::document_positions(context);
  if (context.cache) {
    const Shape states{qkv.shape()[0], config_.value_heads, config_.key_dim, config_.value_dim};
    const DType wide = wide_dtype(qkv.dtype());
    options.first_state_BHKV = context.cache->state(context.block, 1, states, wide);
    options.last_state_BHKV = empty(states, wide, "states of a delta rule");
  }
  const Variable o = ops::delta_rule(qkv, x.a, x.b, context.use(*a_log_), context.use(*dt_bias_), options);
  if (context.cache) context.cache->keep_state(context.block, 1, options.last_state_BHKV, qkv.shape()[1]);
  return o;
}

Variable GatedDeltaNet::operator()(const Variable& residual_BTC, const Variable& x_BTC, const Context& context) const {
  const Shape& s = x_BTC.shape();
  const Shape whole{s[0], s[1], values(config_)}, by_head{s[0], s[1], config_.value_heads, config_.value_dim};
  const Projected x = projected(x_BTC, context);
  const Variable o = ruled(conv_(x.qkv, true, context), x, context);
  const Variable normed = ops::reshape(norm_(ops::reshape(o, by_head), context), whole);
  return out_(ops::swiglu(x.z, normed), context, residual_BTC);
}

void GatedDeltaNet::list(nn::ParameterList& parameters) const {
  for (const auto* layer : {&qkv_, &z_, &b_, &a_, &qkvz_, &ba_}) {
    if (*layer) (*layer)->list(parameters);
  }
  conv_.list(parameters);
  for (const auto& parameter : {dt_bias_, a_log_}) parameters.push_back({parameter});
  norm_.list(parameters);
  out_.list(parameters);
}

}  // namespace spillway::models
