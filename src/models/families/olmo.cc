// OLMo 2 (arXiv:2501.00656) and OLMo 3 (arXiv:2512.13961).
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

constexpr DecoderStyle::Norms kOlmoNorms{.before_attention = nullptr,
                                         .after_attention = "post_attention_layernorm",
                                         .before_mlp = nullptr,
                                         .after_mlp = "post_feedforward_layernorm"};

void read_olmo3(const ConfigObject& object, ModelConfig& config) {
  read_windows(object, config, window_of(object, 4096), [](i64 layer) { return (layer + 1) % 4 != 0; });
}

void write_olmo3(const ModelConfig& c, nlohmann::json& root) { write_windows(c, root, 4096); }

constexpr DecoderPreset kOlmo3Presets[] = {
    {"olmo3-7b",
     R"({"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 100278,
           "max_position_embeddings": 65536, "rms_norm_eps": 1e-6, "rope_scaling": {"rope_type": "yarn", "factor": 8, "beta_fast": 32,
           "beta_slow": 1, "original_max_position_embeddings": 8192, "attention_factor": 1.2079441541679836}, "pad_token_id": 100277,
           "eos_token_id": 100257})"},
    {"olmo3-32b",
     R"({"num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
           "intermediate_size": 27648, "vocab_size": 100278, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
           "rope_scaling": {"rope_type": "yarn", "factor": 8, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 8192,
           "attention_factor": 1.2079441541679836}, "pad_token_id": 100277, "eos_token_id": 100257})"}};

}  // namespace

constinit const DecoderFamily kOlmo2{.family = Family::olmo2,
                                     .type = "olmo2",
                                     .architecture = "Olmo2ForCausalLM",
                                     .defaults = {.norm_eps = 1e-5, .pad_token = 1, .end_tokens = {50279}},
                                     .style = {.qk_norm = DecoderStyle::QkNorm::whole, .norms = kOlmoNorms},
                                     .features = {"attention_bias"}};

constinit const DecoderFamily kOlmo3{
    .family = Family::olmo3,
    .type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .defaults = {.norm_eps = 1e-5, .theta = 5e5, .local_theta = 5e5, .pad_token = 1, .end_tokens = {50279}},
    .style = {.qk_norm = DecoderStyle::QkNorm::whole, .norms = kOlmoNorms},
    .features = {"attention_bias", "sliding_window", "layer_types"},
    .read = read_olmo3,
    .write = write_olmo3,
    .presets = kOlmo3Presets};

}  // namespace spillway::models
