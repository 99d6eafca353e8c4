// Reads rotary positions from config.json (transformers' modeling_rope_utils defines what the numbers mean).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// The settings of rotary positions (RoPE) that one JSON object specifies.
struct Rope {
  std::optional<double> theta, share;
  std::optional<RopeScaling> scaling;
};

std::optional<double> theta_of(const ConfigObject& object, const char* key = "rope_theta") {
  if (!object.has(key)) return {};
  return object.real(key, 1, 1e15, {}, true);
}

std::optional<double> share_of(const ConfigObject& object) {
  if (!object.has("partial_rotary_factor")) return {};
  return object.real("partial_rotary_factor", 0, 1, {}, true);
}

RopeScaling llama3_scaling(const ConfigObject& object) {
  RopeScaling scaling;
  scaling.factor = object.real("factor", 1, 1e6);
  scaling.low_freq_factor = object.real("low_freq_factor", 0, 1e6, {}, true);
  scaling.high_freq_factor = object.real("high_freq_factor", scaling.low_freq_factor, 1e6, {}, true);
  scaling.original_positions = object.whole("original_max_position_embeddings", 1, kMaxPositions);
  return scaling;
}

RopeScaling linear_scaling(const ConfigObject& object) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::linear;
  scaling.factor = object.real("factor", 1, 1e6);
  return scaling;
}

// Returns yarn's attention factor for configurations that do not set it: 0.1 m ln(factor) + 1 with m = 1, or the quotient of two such terms
// with m = mscale and m = mscale_all_dim.
double yarn_attention_factor(const ConfigObject& object, double factor) {
  const auto of = [&](double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; };
  const double mscale = object.real("mscale", 0, 1e3, 0.0), all = object.real("mscale_all_dim", 0, 1e3, 0.0);
  return mscale != 0 && all != 0 ? of(mscale) / of(all) : of(1);
}

RopeScaling yarn_scaling(const ConfigObject& object, i64 positions) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::yarn;
  scaling.factor = object.real("factor", 1, 1e6);
  scaling.original_positions = object.whole("original_max_position_embeddings", 1, kMaxPositions, positions);
  scaling.beta_slow = object.real("beta_slow", 0, 1e6, 1.0, true);
  scaling.beta_fast = object.real("beta_fast", scaling.beta_slow, 1e6, 32.0, true);
  scaling.whole_pairs = object.flag("truncate", true);
  scaling.attention_factor =
      object.has("attention_factor") ? object.real("attention_factor", 0, 1e3, {}, true) : yarn_attention_factor(object, scaling.factor);
  return scaling;
}

// Returns the keys that are allowed for this rope_type only, besides those that are allowed for every rope_type.
std::vector<std::string_view> keys_of(std::string_view type) {
  if (type == "llama3") return {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
  if (type == "linear") return {"factor"};
  if (type == "yarn")
    return {"factor",  "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim",
            "truncate"};
  return {};
}

Rope parse_object(const json& value, const ConfigObject& parent, const std::string& key, i64 positions) {
  if (!value.is_object()) parent.complain(key, "an object");
  const ConfigObject object(value, parent.file(), key + ".");
  const char* const type_key = object.has("rope_type") || !object.has("type") ? "rope_type" : "type";
  const std::string type = object.text(type_key, "default");
  if (type != "default" && type != "llama3" && type != "linear" && type != "yarn")
    object.complain(type_key, "default, linear, llama3 or yarn (no other kind is supported)");
  const auto own = keys_of(type);
  for (const auto& [name, entry] : value.items()) {
    const bool common = name == "rope_type" || name == "type" || name == "rope_theta" || name == "partial_rotary_factor";
    if (!entry.is_null() && !common && std::ranges::find(own, name) == own.end())
      object.complain(name, "no such key, because this key has no meaning with rope_type " + type);
  }
  Rope rope{theta_of(object), share_of(object), {}};
  if (type == "llama3") rope.scaling = llama3_scaling(object);
  if (type == "linear") rope.scaling = linear_scaling(object);
  if (type == "yarn") rope.scaling = yarn_scaling(object, positions);
  return rope;
}

// Returns whether `value` holds separate settings for layers with full_attention and for those with sliding_attention.
bool is_by_layer(const json& value) {
  return value.is_object() && (value.contains("full_attention") || value.contains("sliding_attention"));
}

Rope parse_by_layer(const json& value, const ConfigObject& parent, const std::string& key, ModelConfig& config) {
  for (const auto& [name, entry] : value.items()) {
    if (name != "full_attention" && name != "sliding_attention")
      parent.complain(key, "the two keys full_attention and sliding_attention and no others");
  }
  const auto of = [&](const char* layer) {
    if (!value.contains(layer)) parent.complain(key, fmt::format("an entry `{}`", layer));
    return parse_object(value[layer], parent, key + "." + layer, config.positions);
  };
  const Rope local = of("sliding_attention");
  if (local.scaling) parent.complain(key, "rope_type default for sliding_attention (no other rope_type is supported for these layers)");
  config.local_rope_theta = local.theta.value_or(10000);
  return of("full_attention");
}

}  // namespace

void read_rope(const ConfigObject& object, ModelConfig& config, double theta_default) {
  std::optional<double> theta = theta_of(object), share = share_of(object);
  std::optional<Rope> rope;
  const bool local = config.family == Family::gemma3;
  if (local) config.local_rope_theta = theta_of(object, "rope_local_base_freq").value_or(10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!object.has(key)) continue;
    const json& value = *object.find(key);
    const Rope said =
        local && is_by_layer(value) ? parse_by_layer(value, object, key, config) : parse_object(value, object, key, config.positions);
    if (rope && rope->scaling != said.scaling) object.complain(key, "the same scaling as `rope_scaling` has");
    if (theta && said.theta && theta != said.theta)
      object.complain(key, fmt::format("the same `rope_theta` as elsewhere in the file, {}", *theta));
    if (share && said.share && share != said.share)
      object.complain(key, fmt::format("the same `partial_rotary_factor` as elsewhere in the file, {}", *share));
    if (said.theta) theta = said.theta;
    if (said.share) share = said.share;
    rope = said;
  }
  config.rope_theta = theta.value_or(theta_default);
  if (rope) config.rope_scaling = rope->scaling;
  if (share.value_or(1) != 1 && config.family != Family::phi3)
    object.complain("partial_rotary_factor", "1 or no such key (this feature is not supported for this model_type)");
  if (share.value_or(1) == 1) return;
  config.rotary_dim = static_cast<i64>(static_cast<double>(config.head_dim) * *share);
  if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0)
    object.complain("partial_rotary_factor",
                    fmt::format("a factor that rotates an even number of elements, at least 2, of a head of {} elements", config.head_dim));
}

}  // namespace spillway::models
