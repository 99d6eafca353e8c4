// Reads and writes which layers of a decoder mix positions by something else than attention, and the sizes of those layers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/sequence/short_conv.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

constexpr i64 kMaxExpansion = 64, kMaxState = i64{1} << 16;

// Reads a limit of the time step: a number, or infinity as transformers 5 writes it.
double limit_of(const ConfigObject& object, const json& value) {
  static const json infinite = {{"__float__", "Infinity"}};
  if (value == infinite) return std::numeric_limits<double>::infinity();
  if (!value.is_number() || value.get<double>() < 0 || !std::isfinite(value.get<double>()))
    object.complain("time_step_limit", "two numbers of at least 0, of which the second one may be infinite");
  return value.get<double>();
}

void read_time_step_limit(const ConfigObject& object, Mamba2Config& m) {
  const json* limits = object.find("time_step_limit");
  if (!limits) return;
  if (!limits->is_array() || limits->size() != 2)
    object.complain("time_step_limit", "two numbers of at least 0, of which the second one may be infinite");
  m.smallest_dt = limit_of(object, (*limits)[0]), m.largest_dt = limit_of(object, (*limits)[1]);
  if (m.smallest_dt > m.largest_dt || std::isinf(m.smallest_dt))
    object.complain("time_step_limit", "two finite limits, the smaller one first");
}

}  // namespace

void read_mixers(const ConfigObject& object, ModelConfig& config, Mixer other, std::initializer_list<std::string_view> names,
                 const std::function<bool(i64)>& rule) {
  const auto layers = static_cast<size_t>(config.layers);
  const json* types = object.find("layer_types");
  if (types && (!types->is_array() || types->size() != layers))
    object.complain("layer_types", fmt::format("a list with one entry for each of the {} layers", layers));
  std::vector<Mixer> mixers(layers);
  for (size_t i = 0; i < layers; ++i) {
    const std::string_view type = types && (*types)[i].is_string() ? (*types)[i].get_ref<const std::string&>() : std::string_view();
    const bool named = std::ranges::find(names, type) != names.end();
    if (types && !named && type != "full_attention" && type != "attention")
      object.complain("layer_types", fmt::format("full_attention or {} for each layer (no other kind is supported)", *names.begin()));
    mixers[i] = (types ? named : rule(static_cast<i64>(i))) ? other : Mixer::attention;
  }
  if (std::ranges::find(mixers, other) != mixers.end()) config.mixers = std::move(mixers);
}

void write_mixers(const ModelConfig& c, json& root, const char* attention, const char* other) {
  for (i64 i = 0; i < c.layers; ++i) root["layer_types"].push_back(c.mixer_of(i) == Mixer::attention ? attention : other);
}

Mamba2Config read_mamba2(const ConfigObject& object, const ModelConfig& config) {
  Mamba2Config m;
  const i64 inner = config.width * object.whole("mamba_expand", 1, kMaxExpansion, 2);
  m.heads = object.whole("mamba_n_heads", 1, kMaxWidth, 128);
  const json* width = object.find("mamba_d_head");
  m.head_dim = !width || *width == "auto" ? inner / m.heads : object.whole("mamba_d_head", 1, kMaxWidth);
  if (m.heads * m.head_dim != inner)
    object.complain("mamba_n_heads", fmt::format("heads of `mamba_d_head` elements that have {} elements together, `mamba_expand` times "
                                                 "`hidden_size`",
                                                 inner));
  m.groups = object.whole("mamba_n_groups", 1, m.heads, 1);
  require_divisible(object, "mamba_n_heads", m.heads, "mamba_n_groups", m.groups);
  m.state = object.whole("mamba_d_state", 1, kMaxState, 256);
  m.taps = object.whole("mamba_d_conv", 1, kernels::kMaxConvTaps, 4);
  m.conv_bias = object.flag("mamba_conv_bias", true);
  m.bias = object.flag("mamba_proj_bias", false);
  read_time_step_limit(object, m);
  return m;
}

void write_mamba2(const ModelConfig& c, json& root) {
  const Mamba2Config& m = c.mamba2;
  root["mamba_expand"] = m.heads * m.head_dim / c.width;
  root["mamba_n_heads"] = m.heads, root["mamba_d_head"] = m.head_dim, root["mamba_n_groups"] = m.groups;
  root["mamba_d_state"] = m.state, root["mamba_d_conv"] = m.taps;
  root["mamba_conv_bias"] = m.conv_bias, root["mamba_proj_bias"] = m.bias;
  // Without the key there is no limit, in transformers 4 too, which does not know its spelling of infinity.
  if (std::isfinite(m.largest_dt)) root["time_step_limit"] = {m.smallest_dt, m.largest_dt};
  if (m.smallest_dt > 0 && std::isinf(m.largest_dt)) root["time_step_limit"] = {m.smallest_dt, {{"__float__", "Infinity"}}};
}

}  // namespace spillway::models
