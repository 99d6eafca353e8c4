// Granite 3, dense, and Granite 4 (arXiv:2408.04324 and its successors): Llama with four multipliers. Most layers of Granite 4 H are
// state-space layers of Mamba 2, beside attention without rotary positions; a mixture of experts has a shared MLP beside it.
#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

void read_granite(const ConfigObject& object, ModelConfig& config) {
  const auto factor = [&](const char* key) { return object.real(key, 0, 1e6, 1.0, true); };
  config.embedding_multiplier = factor("embedding_multiplier");
  config.residual_multiplier = factor("residual_multiplier");
  config.attention_multiplier = factor("attention_multiplier");
  config.logit_divisor = factor("logits_scaling");
}

void write_granite(const ModelConfig& c, nlohmann::json& root) {
  root["embedding_multiplier"] = c.embedding_multiplier;
  root["residual_multiplier"] = c.residual_multiplier;
  root["attention_multiplier"] = c.attention_multiplier;
  root["logits_scaling"] = c.logit_divisor;
}

void read_hybrid(const ConfigObject& object, ModelConfig& config) {
  read_granite(object, config);
  const i64 width = config.mlp_width;
  config.mlp_width = object.whole("shared_intermediate_size", 1, kMaxMlpWidth, 1024);
  if (object.whole("num_local_experts", 0, kMaxExperts, 8) > 0) {
    config.experts = read_experts(object, config, {.count = 8, .chosen = 2});
    config.experts->width = width, config.experts->shared_width = config.mlp_width;
  }
  read_mixers(object, config, Mixer::mamba2, {"mamba", "linear_attention"}, [](i64) { return true; });
  config.mamba2 = read_mamba2(object, config);
  const std::string positions = object.text("position_embedding_type", "nope");
  if (positions != "rope" && positions != "nope") object.complain("position_embedding_type", "rope, nope or no such key");
  if (positions == "nope") config.unrotated.assign(static_cast<size_t>(config.layers), true);
}

void write_hybrid(const ModelConfig& c, nlohmann::json& root) {
  write_granite(c, root);
  root["num_local_experts"] = root["num_experts_per_tok"] = 0;
  if (c.experts) {
    write_experts(c, root);
    root["intermediate_size"] = c.experts->width;
  }
  root["shared_intermediate_size"] = c.mlp_width;
  root["position_embedding_type"] = c.is_rotated(0) ? nlohmann::json("rope") : nlohmann::json(nullptr);
  write_mixers(c, root, "attention", "mamba");
  write_mamba2(c, root);
}

constexpr DecoderPreset kGranitePresets[] = {
    {"granite3.3-2b",
     R"({"num_hidden_layers": 40, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 8192, "vocab_size": 49159, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e7,
           "tie_word_embeddings": true, "embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.015625,
           "logits_scaling": 8, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0})"},
    {"granite3.3-8b",
     R"({"num_hidden_layers": 40, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 12800, "vocab_size": 49159, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e7,
           "tie_word_embeddings": true, "embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125,
           "logits_scaling": 16, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0})"}};

}  // namespace

constinit const DecoderFamily kGranite{.family = Family::granite,
                                       .type = "granite",
                                       .architecture = "GraniteForCausalLM",
                                       .defaults = {.begin_token = 1, .end_tokens = {2}},
                                       .style = {},
                                       .features = {"attention_bias", "mlp_bias"},
                                       .read = read_granite,
                                       .write = write_granite,
                                       .presets = kGranitePresets};

constinit const DecoderFamily kGraniteHybrid{
    .family = Family::granite_hybrid,
    .type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .defaults = {.positions = 2048, .vocabulary = 32000, .begin_token = 1, .end_tokens = {2}},
    .style = {.mlp_names = {.mlp = "shared_mlp", .down = "output_linear", .gate_up = "input_linear"},
              .fused_gate = true,
              .experts = {.mixture = "block_sparse_moe",
                          .router = "router.layer",
                          .shared = "shared_mlp",
                          .stacked_gate_up = "input_linear.weight",
                          .stacked_down = "output_linear.weight",
                          .stacked = true}},
    .features = {"attention_bias", "layer_types", "num_local_experts", "num_experts"},
    .read = read_hybrid,
    .write = write_hybrid};

}  // namespace spillway::models
