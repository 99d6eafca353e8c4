// GLM-4 (arXiv:2406.12793; model_type glm4), dense.
#include "models/families/all.h"

namespace spillway::models {
namespace {

// The output projection never has a bias.
void read_glm4(const ConfigObject&, ModelConfig& config) { config.output_bias = false; }

constexpr DecoderPreset kGlm4Presets[] = {
    {"glm4-9b",
     R"({"num_hidden_layers": 40, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 13696, "vocab_size": 151552,
           "max_position_embeddings": 32768, "rms_norm_eps": 1e-5})"},
    {"glm4-32b",
     R"({"num_hidden_layers": 61, "hidden_size": 6144, "num_attention_heads": 48, "intermediate_size": 23040, "vocab_size": 151552,
           "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "attention_bias": false})"}};

}  // namespace

constinit const DecoderFamily kGlm4{.family = Family::glm4,
                                    .type = "glm4",
                                    .architecture = "Glm4ForCausalLM",
                                    .defaults = {.kv_heads = 2,
                                                 .head_dim = 128,
                                                 .norm_eps = 1.5625e-7,
                                                 .rotary_share = 0.5,
                                                 .attention_bias = true,
                                                 .pad_token = 151329,
                                                 .end_tokens = {151329, 151336, 151338}},
                                    .style = {.norms = {.before_attention = "input_layernorm",
                                                        .after_attention = "post_self_attn_layernorm",
                                                        .before_mlp = "post_attention_layernorm",
                                                        .after_mlp = "post_mlp_layernorm"},
                                              .fused_gate = true,
                                              .rope_pairs = true},
                                    .features = {"attention_bias", "partial_rotary_factor"},
                                    .read = read_glm4,
                                    .presets = kGlm4Presets};

}  // namespace spillway::models
