// Keys of config.json that single families have: what is refused, and by which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/config.h"

namespace spillway::models::family_config_test {
namespace {

using ::testing::HasSubstr;

const char* kOthers =
    R"({"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 80,
                          "max_position_embeddings": 64, "vocab_size": 97, "head_dim": 8, "model_type": "gemma2"})";
const char* kGemma4 = R"({"model_type": "gemma4_text", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                          "intermediate_size": 80, "max_position_embeddings": 64, "vocab_size": 97, "hidden_size_per_layer_input": 0,
                          "layer_types": ["sliding_attention", "full_attention"]})";

const char* kHybrid = R"({"model_type": "granitemoehybrid", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                          "intermediate_size": 80, "num_local_experts": 0, "mamba_n_heads": 8, "layer_types": ["mamba", "attention"]})";
const char* kLfm2 = R"({"model_type": "lfm2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                        "intermediate_size": 80, "layer_types": ["conv", "full_attention"]})";
const char* kGlm4Moe = R"({"model_type": "glm4_moe", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                           "num_key_value_heads": 2, "intermediate_size": 80, "n_routed_experts": 8, "num_experts_per_tok": 3})";

const char* kDeepSeek = R"({"model_type": "deepseek_v3", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                            "num_key_value_heads": 4, "intermediate_size": 80})";
const char* kQwen35 = R"({"model_type": "qwen3_5_text", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                          "num_key_value_heads": 2, "intermediate_size": 80, "layer_types": ["linear_attention", "full_attention"]})";

const char* kErnie = R"({"model_type": "ernie4_5_moe", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                         "num_key_value_heads": 2, "intermediate_size": 80})";

struct Hostile {
  const char* base;
  const char* changes;  // replace keys of `base`
  const char* key;      // the key that the error message must name
  const char* says;
};

class HostileFamily : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileFamily, IsRefusedByTheKeysName) {
  const auto& [base, changes, key, says] = GetParam();
  nlohmann::json config = nlohmann::json::parse(base);
  config.update(nlohmann::json::parse(changes));
  try {
    parse_config(config.dump(), "some/config.json");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    EXPECT_THAT(error.what(), HasSubstr("[config] some/config.json"));
    EXPECT_THAT(error.what(), HasSubstr("`" + std::string(key) + "`"));
    EXPECT_THAT(error.what(), HasSubstr(says));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, HostileFamily,
    ::testing::Values(
        Hostile{kOthers, R"({"model_type": "gemma4_text", "sliding_window": 4})", "vocab_size_per_layer_input", "vocab_size"},
        Hostile{kGemma4, R"({"num_kv_shared_layers": 1})", "num_kv_shared_layers", "leaves a layer of each kind"},
        Hostile{kGemma4, R"({"enable_moe_block": true})", "num_experts", "whole number"},
        Hostile{kGemma4, R"({"per_layer_config": []})", "per_layer_config", "an object"},
        Hostile{kGemma4, R"({"per_layer_config": {"0": {"head_dim": 8}}})", "per_layer_config", "entries are layers with full_attention"},
        Hostile{kGemma4, R"({"per_layer_config": {"1": {"head_dim": 8}, "01": {}}})", "per_layer_config",
                "entries are layers with full_attention"},
        Hostile{kGemma4, R"({"per_layer_config": {"1": {"head_dim": -8}}})", "per_layer_config.1.head_dim", "from 2 to"},
        Hostile{kGemma4, R"({"global_head_dim": 7})", "global_head_dim", "even"},
        Hostile{kGemma4, R"({"attention_k_eq_v": true, "num_global_key_value_heads": 3})", "num_attention_heads", "a multiple of"},
        Hostile{kGlm4Moe, R"({"n_group": 3})", "n_routed_experts", "a multiple of `n_group` (3)"},
        Hostile{kGlm4Moe, R"({"n_group": 8})", "n_group", "at least two experts"},
        Hostile{kGlm4Moe, R"({"n_group": 33})", "n_group", "from 1 to 32"},
        Hostile{kGlm4Moe, R"({"n_group": 4})", "topk_group", "at least 3 experts"},
        Hostile{kGlm4Moe, R"({"topk_group": 2})", "topk_group", "from 1 to 1"},
        Hostile{kGlm4Moe, R"({"n_routed_experts": 0})", "n_routed_experts", "from 1 to"},
        Hostile{kGlm4Moe, R"({"num_experts_per_tok": 9})", "num_experts_per_tok", "from 1 to 8"},
        Hostile{kGlm4Moe, R"({"n_shared_experts": 4096, "moe_intermediate_size": 4096})", "n_shared_experts", "at most"},
        Hostile{kGlm4Moe, R"({"routed_scaling_factor": 0})", "routed_scaling_factor", "above 0"},
        Hostile{kGlm4Moe, R"({"first_k_dense_replace": -1})", "first_k_dense_replace", "from 0 to"},
        Hostile{kDeepSeek, R"({"num_key_value_heads": 2})", "num_key_value_heads", "the value of `num_attention_heads`"},
        Hostile{kDeepSeek, R"({"q_lora_rank": 0})", "q_lora_rank", "from 1 to"},
        Hostile{kDeepSeek, R"({"qk_rope_head_dim": 3})", "qk_rope_head_dim", "an even number"},
        Hostile{kDeepSeek, R"({"v_head_dim": 193})", "v_head_dim", "no wider than keys"},
        Hostile{kDeepSeek, R"({"rope_interleave": false})", "rope_interleave", "true"},
        Hostile{kOthers, R"({"model_type": "gemma3"})", "text_config", "an object"},
        Hostile{kOthers, R"({"model_type": "gemma3", "text_config": {"model_type": "t5"}})", "text_config.model_type", "gemma3_text"},
        Hostile{kOthers, R"({"model_type": "phi3", "rope_scaling": {"type": "dynamic", "factor": 2}})", "rope_scaling.type", "longrope"},
        Hostile{kOthers, R"({"model_type": "smollm3", "no_rope_layers": [1]})", "no_rope_layers", "for each layer"},
        Hostile{kOthers, R"({"model_type": "smollm3", "no_rope_layers": [1, 2]})", "no_rope_layers", "for each layer"},
        Hostile{kOthers, R"({"model_type": "smollm3", "no_rope_layer_interval": 0})", "no_rope_layer_interval", "from 1 to"},
        Hostile{kOthers, R"({"model_type": "granite", "logits_scaling": 0})", "logits_scaling", "above 0"},
        Hostile{kOthers, R"({"model_type": "granite", "residual_multiplier": "1"})", "residual_multiplier", "a number"},
        Hostile{kHybrid, R"({"num_local_experts": 8, "num_experts_per_tok": 9})", "num_experts_per_tok", "from 1 to 8"},
        Hostile{kHybrid, R"({"num_local_experts": 5000})", "num_local_experts", "from 0 to"},
        Hostile{kHybrid, R"({"layer_types": ["mamba"]})", "layer_types", "each of the 2 layers"},
        Hostile{kHybrid, R"({"layer_types": ["mamba", 1]})", "layer_types", "full_attention or mamba"},
        Hostile{kHybrid, R"({"mamba_n_heads": 7})", "mamba_n_heads", "64 elements together"},
        Hostile{kHybrid, R"({"mamba_n_groups": 3})", "mamba_n_heads", "a multiple of"},
        Hostile{kHybrid, R"({"mamba_d_conv": 9})", "mamba_d_conv", "from 1 to 8"},
        Hostile{kHybrid, R"({"mamba_d_state": 1000000})", "mamba_d_state", "from 1 to"},
        Hostile{kHybrid, R"({"time_step_limit": [0.5, 0.1]})", "time_step_limit", "the smaller one first"},
        Hostile{kHybrid, R"({"time_step_limit": [0.5]})", "time_step_limit", "two numbers"},
        Hostile{kHybrid, R"({"time_step_limit": [-1, 1]})", "time_step_limit", "at least 0"},
        Hostile{kHybrid, R"({"position_embedding_type": "alibi"})", "position_embedding_type", "rope"},
        Hostile{kLfm2, R"({"conv_L_cache": 0})", "conv_L_cache", "from 1 to 8"},
        Hostile{kLfm2, R"({"layer_types": ["conv", "mamba"]})", "layer_types", "full_attention or conv"},
        Hostile{kLfm2, R"({"full_attn_idxs": 1})", "full_attn_idxs", "a list"},
        Hostile{kLfm2, R"({"block_multiple_of": 0})", "block_multiple_of", "from 1 to"},
        Hostile{kLfm2, R"({"intermediate_size": 1})", "intermediate_size", "at least 1"},
        Hostile{kQwen35, R"({"layer_types": ["linear_attention", "mamba"]})", "layer_types", "full_attention or linear_attention"},
        Hostile{kQwen35, R"({"layer_types": null, "full_attention_interval": 0})", "full_attention_interval", "from 1 to"},
        Hostile{kQwen35, R"({"linear_num_key_heads": 3})", "linear_num_value_heads", "a multiple of"},
        Hostile{kQwen35, R"({"linear_key_head_dim": 100000})", "linear_key_head_dim", "from 1 to"},
        Hostile{kQwen35, R"({"linear_conv_kernel_dim": 9})", "linear_conv_kernel_dim", "from 1 to 8"},
        Hostile{kQwen35, R"({"attn_output_gate": false})", "attn_output_gate", "true or no such key"},
        Hostile{kErnie, R"({"use_bias": true})", "use_bias", "not supported"}, Hostile{kErnie, R"({"moe_k": 65})", "moe_k", "from 1 to 64"},
        Hostile{kErnie, R"({"moe_layer_interval": 0})", "moe_layer_interval", "from 1 to"},
        Hostile{kErnie, R"({"moe_num_experts": 100000})", "moe_num_experts", "from 1 to"},
        Hostile{kDeepSeek, R"({"model_type": "deepseek_v2"})", "num_experts_per_tok", "a whole number"},
        Hostile{kDeepSeek, R"({"model_type": "deepseek_v2", "num_experts_per_tok": 2, "topk_method": "noaux_tc"})", "topk_method",
                "greedy or group_limited_greedy"},
        Hostile{kDeepSeek, R"({"model_type": "deepseek_v2", "num_experts_per_tok": 2, "topk_method": "group_limited_greedy", "n_group": 7,
                "topk_group": 1})",
                "n_routed_experts", "a multiple of"},
        Hostile{kDeepSeek, R"({"model_type": "glm4_moe_lite", "mlp_layer_types": ["dense"]})", "mlp_layer_types", "a list of 2 words"},
        Hostile{kDeepSeek, R"({"model_type": "glm4_moe_lite", "mlp_layer_types": ["dense", "thin"]})", "mlp_layer_types",
                "the words dense and sparse"},
        Hostile{kQwen35, R"({"model_type": "qwen3_5_moe_text", "num_experts": 0})", "num_experts", "from 1 to"},
        Hostile{kQwen35, R"({"model_type": "qwen3_5_moe_text", "shared_expert_intermediate_size": 0})", "shared_expert_intermediate_size",
                "from 1 to"},
        Hostile{kQwen35, R"({"model_type": "qwen3_next", "mlp_only_layers": [2]})", "mlp_only_layers", "layer numbers from 0 to 1"},
        Hostile{kOthers, R"({"model_type": "seed_oss", "residual_dropout": 1})", "residual_dropout", "below 1"},
        Hostile{kOthers, R"({"model_type": "gpt_oss", "swiglu_limit": 0})", "swiglu_limit", "above 0"},
        Hostile{kOthers, R"({"model_type": "gpt_oss", "quantization_config": {"quant_method": "bitsandbytes"}})",
                "quantization_config.quant_method", "mxfp4"},
        Hostile{kOthers, R"({"model_type": "cohere2", "head_dim": 2})", "head_dim", "hidden_size / num_attention_heads"},
        Hostile{kOthers, R"({"model_type": "cohere2", "layer_norm_eps": 0})", "layer_norm_eps", "above 0"}));

// The limit of a time step is infinite in the spelling of transformers 5, and without the key.
TEST(TimeStepLimit, MayBeInfinite) {
  nlohmann::json config = nlohmann::json::parse(kHybrid);
  const ModelConfig without = parse_config(config.dump(), "config.json");
  config["time_step_limit"] = nlohmann::json::parse(R"([0.0, {"__float__": "Infinity"}])");
  EXPECT_EQ(parse_config(config.dump(), "config.json"), without);
  EXPECT_EQ(without.mamba2.largest_dt, std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace spillway::models::family_config_test
