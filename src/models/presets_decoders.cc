#include "models/presets_decoders.h"

#include <algorithm>
#include <array>

#include "models/families/family.h"

namespace spillway::models {
namespace {

// One size of a family of decoders, as in its published config.json.
struct Size {
  std::string_view name;
  Family family;
  i64 layers, width, heads, kv_heads, head_dim, mlp_width, vocabulary, positions;
  bool tied;
  double norm_eps, theta;
  i64 window = 0;
  i64 end_token = 0;
  double query_scalar = 0;
  struct Experts {
    i64 count = 0, chosen = 0, width = 0;
    double balance = 0;
  } experts;
};

constexpr std::array<Size, 24> kSizes{{
    {"qwen2.5-0.5b", Family::qwen2, 24, 896, 14, 2, 64, 4864, 151936, 32768, true, 1e-6, 1e6, 0, 151643},
    {"qwen2.5-1.5b", Family::qwen2, 28, 1536, 12, 2, 128, 8960, 151936, 131072, true, 1e-6, 1e6, 0, 151643},
    {"qwen2.5-3b", Family::qwen2, 36, 2048, 16, 2, 128, 11008, 151936, 32768, true, 1e-6, 1e6, 0, 151643},
    {"qwen2.5-7b", Family::qwen2, 28, 3584, 28, 4, 128, 18944, 152064, 131072, false, 1e-6, 1e6, 0, 151643},
    {"qwen2.5-14b", Family::qwen2, 48, 5120, 40, 8, 128, 13824, 152064, 131072, false, 1e-5, 1e6, 0, 151643},
    {"qwen2.5-32b", Family::qwen2, 64, 5120, 40, 8, 128, 27648, 152064, 131072, false, 1e-5, 1e6, 0, 151643},
    {"qwen2.5-72b", Family::qwen2, 80, 8192, 64, 8, 128, 29568, 152064, 131072, false, 1e-5, 1e6, 0, 151643},
    {"qwen3-0.6b", Family::qwen3, 28, 1024, 16, 8, 128, 3072, 151936, 40960, true, 1e-6, 1e6, 0, 151645},
    {"qwen3-1.7b", Family::qwen3, 28, 2048, 16, 8, 128, 6144, 151936, 40960, true, 1e-6, 1e6, 0, 151645},
    {"qwen3-4b", Family::qwen3, 36, 2560, 32, 8, 128, 9728, 151936, 40960, true, 1e-6, 1e6, 0, 151645},
    {"qwen3-8b", Family::qwen3, 36, 4096, 32, 8, 128, 12288, 151936, 40960, false, 1e-6, 1e6, 0, 151645},
    {"qwen3-14b", Family::qwen3, 40, 5120, 40, 8, 128, 17408, 151936, 40960, false, 1e-6, 1e6, 0, 151645},
    {"qwen3-32b", Family::qwen3, 64, 5120, 64, 8, 128, 25600, 151936, 40960, false, 1e-6, 1e6, 0, 151645},
    {"qwen3-30b-a3b", Family::qwen3_moe, 48, 2048, 32, 4, 128, 6144, 151936, 40960, false, 1e-6, 1e6, 0, 151645, 0, {128, 8, 768, 0.001}},
    {"mistral-7b", Family::mistral, 32, 4096, 32, 8, 128, 14336, 32768, 32768, false, 1e-5, 1e6, 0, 2},
    {"mixtral-8x7b", Family::mixtral, 32, 4096, 32, 8, 128, 14336, 32000, 32768, false, 1e-5, 1e6, 0, 2, 0, {8, 2, 14336, 0.02}},
    {"gemma2-2b", Family::gemma2, 26, 2304, 8, 4, 256, 9216, 256000, 8192, true, 1e-6, 1e4, 4096, 1, 256},
    {"gemma2-9b", Family::gemma2, 42, 3584, 16, 8, 256, 14336, 256000, 8192, true, 1e-6, 1e4, 4096, 1, 256},
    {"gemma2-27b", Family::gemma2, 46, 4608, 32, 16, 128, 36864, 256000, 8192, true, 1e-6, 1e4, 4096, 1, 144},
    {"gemma3-1b", Family::gemma3, 26, 1152, 4, 1, 256, 6912, 262144, 32768, true, 1e-6, 1e6, 512, 1, 256},
    {"phi3-mini", Family::phi3, 32, 3072, 32, 32, 96, 8192, 32064, 4096, false, 1e-5, 1e4, 2047, 32000},
    {"olmo2-1b", Family::olmo2, 16, 2048, 16, 16, 128, 8192, 100352, 4096, false, 1e-6, 5e5, 0, 100257},
    {"olmo2-7b", Family::olmo2, 32, 4096, 32, 32, 128, 11008, 100352, 4096, false, 1e-6, 5e5, 0, 100257},
    {"olmo2-13b", Family::olmo2, 40, 5120, 40, 40, 128, 13824, 100352, 4096, false, 1e-6, 5e5, 0, 100257},
}};

const std::vector<std::string_view>& names() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> list;
    for (const Size& size : kSizes) list.push_back(size.name);
    for (const DecoderFamily* family : decoder_families()) {
      for (const DecoderPreset& preset : family->presets) list.push_back(preset.name);
    }
    return list;
  }();
  return all;
}

std::optional<ModelConfig> preset_of_family(std::string_view name) {
  for (const DecoderFamily* family : decoder_families()) {
    const auto found = std::ranges::find(family->presets, name, &DecoderPreset::name);
    if (found == family->presets.end()) continue;
    const std::string file = "preset " + std::string(name);
    const nlohmann::json config = parse_object(found->config, file, "preset");
    return read_decoder(*family, ConfigObject(config, file));
  }
  return {};
}

bool is_windowed(Family family, i64 layer) {
  if (family == Family::gemma2) return layer % 2 == 0;
  return family != Family::gemma3 || (layer + 1) % 6 != 0;
}

}  // namespace

std::span<const std::string_view> decoder_preset_names() { return names(); }

std::optional<ModelConfig> decoder_preset(std::string_view name) {
  const auto size = std::ranges::find(kSizes, name, &Size::name);
  if (size == kSizes.end()) return preset_of_family(name);
  ModelConfig c;
  c.family = size->family;
  c.layers = size->layers, c.width = size->width, c.heads = size->heads, c.kv_heads = size->kv_heads, c.head_dim = size->head_dim;
  c.mlp_width = size->mlp_width, c.vocabulary = size->vocabulary, c.positions = size->positions;
  c.tied_head = size->tied;
  c.norm_eps = size->norm_eps, c.rope_theta = size->theta;
  c.attention_bias = decoder_family(c.family).defaults.attention_bias;
  c.end_tokens = {size->end_token};
  c.window = size->window;
  for (i64 layer = 0; size->window > 0 && layer < c.layers; ++layer) c.windowed.push_back(is_windowed(c.family, layer));
  c.query_scalar = size->query_scalar;
  if (size->experts.count > 0) {
    const Size::Experts& e = size->experts;
    c.experts = {.count = e.count, .chosen = e.chosen, .width = e.width, .dense_layers = {}, .balance = e.balance};
  }
  if (c.family == Family::gemma2) c.attention_softcap = 50, c.logit_softcap = 30;
  if (c.family == Family::gemma3) c.local_rope_theta = 1e4;
  return c;
}

}  // namespace spillway::models
