// Llama (Touvron et al., arXiv:2302.13971; Grattafiori et al., arXiv:2407.21783) and the families that differ from it in little:
// Mistral (arXiv:2310.06825), Mixtral (arXiv:2401.04088), Ministral 3 and Seed-OSS.
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

void read_with_window(const ConfigObject& object, ModelConfig& config, std::optional<i64> window) {
  read_windows(object, config, window_of(object, window), [](i64) { return true; });
}
void read_mistral(const ConfigObject& object, ModelConfig& config) { read_with_window(object, config, 4096); }
void read_ministral3(const ConfigObject& object, ModelConfig& config) { read_with_window(object, config, {}); }

void write_window(const ModelConfig& c, json& root) { root["sliding_window"] = c.window > 0 ? json(c.window) : json(nullptr); }

void read_mixtral(const ConfigObject& object, ModelConfig& config) {
  read_with_window(object, config, {});
  config.experts = read_experts(object, config, {.count = 8, .chosen = 2});
  config.experts->width = config.mlp_width;
}

void write_mixtral(const ModelConfig& c, json& root) {
  write_window(c, root);
  write_experts(c, root);
  root["router_jitter_noise"] = 0.0;
}

void read_seed(const ConfigObject& object, ModelConfig& config) {
  config.output_bias = object.flag("attention_out_bias", false);
  config.residual_dropout = object.share("residual_dropout", 0.1);
}

void write_seed(const ModelConfig& c, json& root) {
  root["attention_out_bias"] = c.output_bias;
  root["residual_dropout"] = c.residual_dropout;
}

constexpr DecoderPreset kMinistral3Presets[] = {
    {"ministral3-3b",
     R"({"num_hidden_layers": 26, "hidden_size": 3072, "num_attention_heads": 32, "intermediate_size": 9216, "vocab_size": 131072,
           "tie_word_embeddings": true, "max_position_embeddings": 262144,
           "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "original_max_position_embeddings": 16384,
           "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1}})"},
    {"ministral3-8b",
     R"({"num_hidden_layers": 34, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336, "vocab_size": 131072,
           "max_position_embeddings": 262144,
           "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "original_max_position_embeddings": 16384,
           "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1}})"},
    {"ministral3-14b",
     R"({"num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 32, "intermediate_size": 16384, "vocab_size": 131072,
           "max_position_embeddings": 262144,
           "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "original_max_position_embeddings": 16384,
           "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1}})"}};

constexpr DecoderPreset kSeedOssPresets[] = {
    {"seed-oss-36b",
     R"({"num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 80, "intermediate_size": 27648, "vocab_size": 155136,
           "max_position_embeddings": 524288, "rope_theta": 1e7, "attention_dropout": 0.0, "residual_dropout": 0.0})"}};

}  // namespace

constinit const DecoderFamily kLlama{.family = Family::llama,
                                     .type = "llama",
                                     .architecture = "LlamaForCausalLM",
                                     .defaults = {.begin_token = 1, .end_tokens = {2}},
                                     .style = {},
                                     .features = {"attention_bias", "mlp_bias"}};

constinit const DecoderFamily kMistral{.family = Family::mistral,
                                       .type = "mistral",
                                       .architecture = "MistralForCausalLM",
                                       .defaults = {.kv_heads = 8, .begin_token = 1, .end_tokens = {2}},
                                       .style = {},
                                       .features = {"sliding_window"},
                                       .read = read_mistral,
                                       .write = write_window};

constinit const DecoderFamily kMinistral3{
    .family = Family::ministral3,
    .type = "ministral3",
    .architecture = "Ministral3ForCausalLM",
    .defaults = {.kv_heads = 8, .head_dim = 128, .norm_eps = 1e-5, .begin_token = 1, .pad_token = 11, .end_tokens = {2}},
    .style = {},
    .features = {"sliding_window", "llama_4_scaling_beta"},
    .read = read_ministral3,
    .write = write_window,
    .presets = kMinistral3Presets};

constinit const DecoderFamily kMixtral{.family = Family::mixtral,
                                       .type = "mixtral",
                                       .architecture = "MixtralForCausalLM",
                                       .defaults = {.kv_heads = 8, .norm_eps = 1e-5, .theta = 1e6, .begin_token = 1, .end_tokens = {2}},
                                       .style = {.experts = {.mixture = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"}},
                                       .features = {"num_experts", "num_local_experts", "sliding_window"},
                                       .read = read_mixtral,
                                       .write = write_mixtral};

constinit const DecoderFamily kSeedOss{
    .family = Family::seed_oss,
    .type = "seed_oss",
    .architecture = "SeedOssForCausalLM",
    .defaults =
        {.kv_heads = 8, .head_dim = 128, .attention_bias = true, .dropout = 0.1, .begin_token = 0, .pad_token = 1, .end_tokens = {2}},
    .style = {},
    .features = {"attention_bias", "mlp_bias"},
    .read = read_seed,
    .write = write_seed,
    .presets = kSeedOssPresets};

}  // namespace spillway::models
