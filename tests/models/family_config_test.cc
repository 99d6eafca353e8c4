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
        Hostile{kOthers, R"({"model_type": "gemma3"})", "text_config", "an object"},
        Hostile{kOthers, R"({"model_type": "gemma3", "text_config": {"model_type": "t5"}})", "text_config.model_type", "gemma3_text"},
        Hostile{kOthers, R"({"model_type": "phi3", "rope_scaling": {"type": "dynamic", "factor": 2}})", "rope_scaling.type", "longrope"},
        Hostile{kOthers, R"({"model_type": "smollm3", "no_rope_layers": [1]})", "no_rope_layers", "for each layer"},
        Hostile{kOthers, R"({"model_type": "smollm3", "no_rope_layers": [1, 2]})", "no_rope_layers", "for each layer"},
        Hostile{kOthers, R"({"model_type": "smollm3", "no_rope_layer_interval": 0})", "no_rope_layer_interval", "from 1 to"},
        Hostile{kOthers, R"({"model_type": "granite", "logits_scaling": 0})", "logits_scaling", "above 0"},
        Hostile{kOthers, R"({"model_type": "granite", "residual_multiplier": "1"})", "residual_multiplier", "a number"},
        Hostile{kOthers, R"({"model_type": "seed_oss", "residual_dropout": 1})", "residual_dropout", "below 1"},
        Hostile{kOthers, R"({"model_type": "gpt_oss", "swiglu_limit": 0})", "swiglu_limit", "above 0"},
        Hostile{kOthers, R"({"model_type": "gpt_oss", "quantization_config": {"quant_method": "bitsandbytes"}})",
                "quantization_config.quant_method", "mxfp4"},
        Hostile{kOthers, R"({"model_type": "cohere2", "head_dim": 2})", "head_dim", "hidden_size / num_attention_heads"},
        Hostile{kOthers, R"({"model_type": "cohere2", "layer_norm_eps": 0})", "layer_norm_eps", "above 0"}));

}  // namespace
}  // namespace spillway::models::family_config_test
