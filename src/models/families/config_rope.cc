// Reads and writes rotary positions in config.json (transformers' modeling_rope_utils defines what the numbers mean).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/families/config_parts.h"

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

// Returns the divisors of the frequencies for longrope: `key` has one for each pair of rotated elements.
std::vector<double> divisors_of(const ConfigObject& object, const char* key, i64 pairs) {
  const json* list = object.find(key);
  const std::string expected = fmt::format("a list of {} numbers above 0, one for each pair of rotated elements", pairs);
  if (!list || !list->is_array() || std::ssize(*list) != pairs) object.complain(key, expected);
  std::vector<double> divisors;
  for (const json& divisor : *list) {
    if (!divisor.is_number() || divisor <= 0 || divisor > 1e9) object.complain(key, expected);
    divisors.push_back(divisor.get<double>());
  }
  return divisors;
}

// Reads longrope for heads of which `pairs` pairs of elements are rotated. `original` is the value of original_max_position_embeddings
// outside of the object, which takes precedence, as in Phi-3.
RopeScaling longrope_scaling(const ConfigObject& object, i64 positions, i64 pairs, std::optional<i64> original) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::longrope;
  scaling.original_positions = original ? *original : object.whole("original_max_position_embeddings", 1, kMaxPositions);
  if (scaling.original_positions < 2) object.complain("original_max_position_embeddings", "at least 2 original positions");
  const double ratio = static_cast<double>(positions) / static_cast<double>(scaling.original_positions);
  scaling.factor = object.real("factor", 0, 1e6, ratio, true);
  scaling.short_factors = divisors_of(object, "short_factor", pairs);
  scaling.long_factors = divisors_of(object, "long_factor", pairs);
  const double usual =
      scaling.factor <= 1 ? 1 : std::sqrt(1 + std::log(scaling.factor) / std::log(static_cast<double>(scaling.original_positions)));
  scaling.attention_factor = object.real("attention_factor", 0, 1e3, usual, true);
  return scaling;
}

// Returns the keys that are allowed for this rope_type only, besides those that are allowed for every rope_type.
std::vector<std::string_view> keys_of(std::string_view type) {
  if (type == "llama3") return {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
  if (type == "linear") return {"factor"};
  if (type == "yarn")
    return {"factor",  "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim",
            "truncate"};
  if (type == "proportional") return {"factor"};
  if (type == "longrope") return {"factor", "original_max_position_embeddings", "short_factor", "long_factor", "attention_factor"};
  return {};
}

// Reads the objects that hold rotary positions, for one family and the sizes that the configuration already has.
class Reader {
 public:
  Reader(const DecoderFamily& family, const ConfigObject& root, const ModelConfig& config)
      : family_(family), config_(config), root_share_(share_of(root)) {
    if (family.has_feature("longrope")) original_ = root.whole("original_max_position_embeddings", 1, kMaxPositions, 4096);
  }

  Rope read(const json& value, const ConfigObject& parent, const std::string& key) const {
    if (!value.is_object()) parent.complain(key, "an object");
    const ConfigObject object(value, parent.file(), key + ".");
    const std::string type = type_of(object);
    check_keys(object, type);
    Rope rope{theta_of(object), share_of(object), {}};
    if (type == "llama3") rope.scaling = llama3_scaling(object);
    if (type == "linear") rope.scaling = linear_scaling(object);
    if (type == "yarn") rope.scaling = yarn_scaling(object, config_.positions);
    if (type == "proportional") {
      rope.scaling = RopeScaling{.factor = object.real("factor", 1, 1e6, 1.0), .kind = RopeScaling::Kind::proportional};
      rope.scaling->share = rope.share.value_or(1);
      rope.share.reset();
    }
    if (type == "longrope") {
      const double share = rope.share ? *rope.share : root_share_.value_or(family_.defaults.rotary_share);
      const i64 pairs = static_cast<i64>(static_cast<double>(config_.head_dim) * share) / 2;
      rope.scaling = longrope_scaling(object, config_.positions, pairs, original_);
    }
    if (type == "yarn" && family_.has_feature("mscale_all_dim")) {
      rope.scaling->mscale = object.real("mscale", 0, 1e3, 0.0);
      rope.scaling->mscale_all = object.real("mscale_all_dim", 0, 1e3, 0.0);
    }
    if (rope.scaling && family_.has_feature("llama_4_scaling_beta"))
      rope.scaling->query_growth = object.real("llama_4_scaling_beta", 0, 1e3, 0.0);
    return rope;
  }

 private:
  std::string type_of(const ConfigObject& object) const {
    const char* const key = object.has("rope_type") || !object.has("type") ? "rope_type" : "type";
    const std::string type = object.text(key, "default");
    if (type == "default" || type == "llama3" || type == "linear" || type == "yarn") return type;
    if (family_.has_feature("proportional") && type == "proportional") return type;
    const bool long_too = family_.has_feature("longrope");
    if (long_too && (type == "longrope" || type == "su")) return "longrope";  // older files of Phi-3 say "su"
    object.complain(key, long_too ? "default, linear, llama3, yarn or longrope (no other kind is supported)"
                                  : "default, linear, llama3 or yarn (no other kind is supported)");
  }

  void check_keys(const ConfigObject& object, const std::string& type) const {
    std::vector<std::string_view> known = keys_of(type);
    known.insert(known.end(), {"rope_type", "type", "rope_theta", "partial_rotary_factor"});
    // Ministral 3 repeats max_position_embeddings here.
    if (family_.has_feature("llama_4_scaling_beta")) known.insert(known.end(), {"llama_4_scaling_beta", "max_position_embeddings"});
    // These say which frequencies stand for a text's position, an image's row and its column, which are equal in texts.
    if (family_.has_feature("mrope_section")) known.insert(known.end(), {"mrope_section", "mrope_interleaved"});
    // transformers copies this key of Phi-3's into the object, whatever the type is.
    if (family_.has_feature("longrope")) known.emplace_back("original_max_position_embeddings");
    for (const auto& [name, entry] : object.object().items()) {
      if (!entry.is_null() && std::ranges::find(known, name) == known.end())
        object.complain(name, "no such key, because this key has no meaning with rope_type " + type);
    }
  }

  const DecoderFamily& family_;
  const ModelConfig& config_;
  const std::optional<double> root_share_;
  std::optional<i64> original_;
};

// Returns whether `value` holds separate settings for layers with full_attention and for those with sliding_attention.
bool is_by_layer(const json& value) {
  return value.is_object() && (value.contains("full_attention") || value.contains("sliding_attention"));
}

Rope read_by_layer(const Reader& reader, const json& value, const ConfigObject& parent, const std::string& key, ModelConfig& config,
                   double local_default) {
  for (const auto& [name, entry] : value.items()) {
    if (name != "full_attention" && name != "sliding_attention")
      parent.complain(key, "the two keys full_attention and sliding_attention and no others");
  }
  const auto of = [&](const char* layer) {
    if (!value.contains(layer)) parent.complain(key, fmt::format("an entry `{}`", layer));
    return reader.read(value[layer], parent, key + "." + layer);
  };
  const Rope local = of("sliding_attention");
  if (local.scaling) parent.complain(key, "rope_type default for sliding_attention (no other rope_type is supported for these layers)");
  config.local_rope_theta = local.theta.value_or(local_default);
  return of("full_attention");
}

json scaling_json(const RopeScaling& s) {
  using Kind = RopeScaling::Kind;
  switch (s.kind) {
    case Kind::linear:
      return {{"rope_type", "linear"}, {"factor", s.factor}};
    case Kind::yarn:
      return {{"rope_type", "yarn"},      {"factor", s.factor},       {"original_max_position_embeddings", s.original_positions},
              {"beta_fast", s.beta_fast}, {"beta_slow", s.beta_slow}, {"attention_factor", s.attention_factor},
              {"truncate", s.whole_pairs}};
    case Kind::longrope:
      return {{"rope_type", "longrope"},
              {"factor", s.factor},
              {"original_max_position_embeddings", s.original_positions},
              {"short_factor", s.short_factors},
              {"long_factor", s.long_factors},
              {"attention_factor", s.attention_factor}};
    case Kind::proportional:
      return {{"rope_type", "proportional"}, {"factor", s.factor}, {"partial_rotary_factor", s.share}};
    default:
      return {{"rope_type", "llama3"},
              {"factor", s.factor},
              {"low_freq_factor", s.low_freq_factor},
              {"high_freq_factor", s.high_freq_factor},
              {"original_max_position_embeddings", s.original_positions}};
  }
}

}  // namespace

void read_rope(const DecoderFamily& family, const ConfigObject& object, ModelConfig& config) {
  std::optional<double> theta = theta_of(object), share = share_of(object);
  std::optional<Rope> rope;
  const std::optional<double> local = family.defaults.local_theta;
  if (local) config.local_rope_theta = theta_of(object, "rope_local_base_freq").value_or(*local);
  const Reader reader(family, object, config);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!object.has(key)) continue;
    const json& value = *object.find(key);
    const Rope said =
        local && is_by_layer(value) ? read_by_layer(reader, value, object, key, config, *local) : reader.read(value, object, key);
    if (rope && rope->scaling != said.scaling) object.complain(key, "the same scaling as `rope_scaling` has");
    if (theta && said.theta && theta != said.theta)
      object.complain(key, fmt::format("the same `rope_theta` as elsewhere in the file, {}", *theta));
    if (share && said.share && share != said.share)
      object.complain(key, fmt::format("the same `partial_rotary_factor` as elsewhere in the file, {}", *share));
    if (said.theta) theta = said.theta;
    if (said.share) share = said.share;
    rope = said;
  }
  config.rope_theta = theta.value_or(family.defaults.theta);
  if (rope) config.rope_scaling = rope->scaling;
  const double rotated = share.value_or(family.defaults.rotary_share);
  if (rotated != 1 && !family.has_feature("partial_rotary_factor"))
    object.complain("partial_rotary_factor", "1 or no such key (this feature is not supported for this model_type)");
  if (rotated == 1) return;
  config.rotary_dim = static_cast<i64>(static_cast<double>(config.head_dim) * rotated);
  if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0)
    object.complain("partial_rotary_factor",
                    fmt::format("a factor that rotates an even number of elements, at least 2, of a head of {} elements", config.head_dim));
}

void write_rope(const DecoderFamily& family, const ModelConfig& c, json& root) {
  json scaling = c.rope_scaling ? scaling_json(*c.rope_scaling) : json(nullptr);
  if (c.rope_scaling && c.rope_scaling->query_growth != 0) scaling["llama_4_scaling_beta"] = c.rope_scaling->query_growth;
  if (c.rope_scaling && c.rope_scaling->mscale != 0) scaling["mscale"] = c.rope_scaling->mscale;
  if (c.rope_scaling && c.rope_scaling->mscale_all != 0) scaling["mscale_all_dim"] = c.rope_scaling->mscale_all;
  json parameters = c.rope_scaling ? scaling : json{{"rope_type", "default"}};
  parameters["rope_theta"] = c.rope_theta;
  if (!c.latent && (c.rotary_dim > 0 || family.defaults.rotary_share != 1)) {
    const double share = c.rotary_dim > 0 ? static_cast<double>(c.rotary_dim) / static_cast<double>(c.head_dim) : 1;
    root["partial_rotary_factor"] = parameters["partial_rotary_factor"] = share;
  }
  if (c.local_rope_theta) {
    parameters = {{"full_attention", std::move(parameters)},
                  {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", *c.local_rope_theta}}}};
  }
  root["rope_theta"] = c.rope_theta;
  root["rope_scaling"] = std::move(scaling);
  root["rope_parameters"] = std::move(parameters);
}

}  // namespace spillway::models
