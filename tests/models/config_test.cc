#include "models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/presets.h"
#include "tests/support/fixtures.h"

namespace spillway::models::config_test {
namespace {

using ::testing::HasSubstr;

const char* kGpt2 = R"({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 64, "vocab_size": 97})";
const char* kLlama = R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                         "intermediate_size": 80, "max_position_embeddings": 64, "vocab_size": 97})";

// Returns the JSON `base` with the keys of `changes` replaced. A change to "<remove>" removes the key.
std::string with(const char* base, const char* changes) {
  nlohmann::json config = nlohmann::json::parse(base);
  const nlohmann::json changed = nlohmann::json::parse(changes);
  for (const auto& [key, value] : changed.items()) {
    if (value == "<remove>") {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  return config.dump();
}

std::string complaint(const std::string& json) {
  try {
    parse_config(json, "some/config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    EXPECT_THAT(error.what(), HasSubstr("[config] some/config.json"));
    return error.what();
  }
  return "accepted";
}

TEST(Config, ReadsTheReferenceFolders) {
  const ModelConfig gpt2 = read_config(test::data("gpt2-tiny"));
  EXPECT_EQ(gpt2.family, Family::gpt2);
  EXPECT_EQ(gpt2.layers, 2);
  EXPECT_EQ(gpt2.width, 32);
  EXPECT_EQ(gpt2.heads, 2);
  EXPECT_EQ(gpt2.kv_heads, 2);
  EXPECT_EQ(gpt2.head_dim, 16);
  EXPECT_EQ(gpt2.mlp_width, 128);
  EXPECT_EQ(gpt2.positions, 64);
  EXPECT_EQ(gpt2.vocabulary, 97);
  EXPECT_TRUE(gpt2.tied_head);
  EXPECT_EQ(gpt2.norm_eps, 1e-5);
  EXPECT_EQ(gpt2.attention_dropout, 0);
  EXPECT_EQ(gpt2.begin_token, 0);
  EXPECT_EQ(gpt2.end_tokens, std::vector<i64>{0});
  EXPECT_FALSE(gpt2.pad_token.has_value());

  const ModelConfig llama = read_config(test::data("llama-tiny"));
  EXPECT_EQ(llama.family, Family::llama);
  EXPECT_EQ(llama.kv_heads, 2);
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.mlp_width, 80);
  EXPECT_FALSE(llama.tied_head);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_FALSE(llama.rope_scaling.has_value());

  const ModelConfig scaled = read_config(test::data("llama3rope-tiny"));
  EXPECT_TRUE(scaled.tied_head);
  EXPECT_EQ(scaled.rope_scaling, (RopeScaling{8, 1, 4, 32}));
}

TEST(Config, MissingKeysHaveTransformersDefaults) {
  const ModelConfig gpt2 = parse_config(kGpt2, "f");
  EXPECT_EQ(gpt2.residual_dropout, 0.1);
  EXPECT_EQ(gpt2.embedding_dropout, 0.1);
  EXPECT_EQ(gpt2.attention_dropout, 0.1);
  EXPECT_EQ(gpt2.begin_token, 50256);
  EXPECT_TRUE(gpt2.tied_head);
  EXPECT_EQ(gpt2.activation, Activation::gelu_tanh);
  const ModelConfig llama = parse_config(kLlama, "f");
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.attention_dropout, 0);
  EXPECT_FALSE(llama.tied_head);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_EQ(llama.end_tokens, std::vector<i64>{2});
}

TEST(Config, ReadsRopeInTheOldStyleAndTheNew) {
  const auto old_style =
      parse_config(with(kLlama, R"({"rope_theta": 5e5, "rope_scaling": {"type": "llama3", "factor": 32, "low_freq_factor": 1,
                                      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})"),
                   "f");
  const auto new_style = parse_config(with(kLlama, R"({"rope_parameters": {"rope_theta": 500000, "rope_type": "llama3", "factor": 32.0,
                                      "low_freq_factor": 1.0, "high_freq_factor": 4, "original_max_position_embeddings": 8192}})"),
                                      "f");
  EXPECT_EQ(old_style, new_style);
  EXPECT_EQ(new_style.rope_theta, 500000);
  EXPECT_EQ(new_style.rope_scaling, (RopeScaling{32, 1, 4, 8192}));
  EXPECT_EQ(parse_config(with(kLlama, R"({"rope_scaling": null, "rope_theta": 5e5})"), "f").rope_scaling, std::nullopt);
}

TEST(Config, ReadsWhatChangesTheNumbers) {
  const auto gpt2 = parse_config(with(kGpt2, R"({"n_inner": 100, "activation_function": "relu", "scale_attn_weights": false,
      "scale_attn_by_inverse_layer_idx": true, "tie_word_embeddings": false, "eos_token_id": [5, 6], "pad_token_id": -1})"),
                                 "f");
  EXPECT_EQ(gpt2.mlp_width, 100);
  EXPECT_EQ(gpt2.activation, Activation::relu);
  EXPECT_FALSE(gpt2.scale_attention);
  EXPECT_TRUE(gpt2.scale_attention_by_layer);
  EXPECT_FALSE(gpt2.tied_head);
  EXPECT_EQ(gpt2.end_tokens, (std::vector<i64>{5, 6}));
  EXPECT_FALSE(gpt2.pad_token.has_value());
  EXPECT_EQ(parse_config(with(kGpt2, R"({"activation_function": "gelu"})"), "f").activation, Activation::gelu_erf);
  EXPECT_EQ(parse_config(with(kGpt2, R"({"activation_function": "gelu_pytorch_tanh"})"), "f").activation, Activation::gelu_tanh);
  const auto llama =
      parse_config(with(kLlama, R"({"head_dim": 16, "attention_bias": true, "mlp_bias": true, "attention_dropout": 0.25})"), "f");
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_TRUE(llama.attention_bias);
  EXPECT_TRUE(llama.mlp_bias);
  EXPECT_EQ(llama.attention_dropout, 0.25);
}

TEST(Config, WritesWhatItReadsBack) {
  for (const auto name : preset_names()) EXPECT_EQ(parse_config(to_json(preset(name)), "f"), preset(name)) << name;
  for (const char* folder : {"gpt2-tiny", "llama-tiny", "llama3rope-tiny"}) {
    const ModelConfig config = read_config(test::data(folder));
    EXPECT_EQ(parse_config(to_json(config, DType::bf16), "f"), config) << folder;
  }
  for (const char* json : {R"({"n_inner": 100, "activation_function": "gelu", "scale_attn_weights": false, "tie_word_embeddings": false,
                               "scale_attn_by_inverse_layer_idx": true, "bos_token_id": null, "eos_token_id": [1, 2], "attn_pdrop": 0.3})",
                           R"({"eos_token_id": null, "embd_pdrop": 0.25, "layer_norm_epsilon": 1e-6, "initializer_range": 0.01})"}) {
    const ModelConfig config = parse_config(with(kGpt2, json), "f");
    EXPECT_EQ(parse_config(to_json(config), "f"), config) << json;
  }
  const ModelConfig llama = parse_config(with(kLlama, R"({"head_dim": 6, "num_key_value_heads": 1, "attention_bias": true, "mlp_bias": true,
      "rms_norm_eps": 1e-3, "tie_word_embeddings": true, "pad_token_id": 3, "rope_theta": 1234.5})"),
                                         "f");
  EXPECT_EQ(parse_config(to_json(llama), "f"), llama);
}

TEST(Config, WritesTheKeysTransformersReads) {
  const auto gpt2 = nlohmann::json::parse(to_json(preset("gpt2-124m"), DType::bf16));
  EXPECT_EQ(gpt2["architectures"], nlohmann::json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(gpt2["model_type"], "gpt2");
  EXPECT_EQ(gpt2["dtype"], "bfloat16");
  EXPECT_EQ(gpt2["eos_token_id"], 50256);
  EXPECT_TRUE(gpt2["n_inner"].is_null());
  const auto llama = nlohmann::json::parse(to_json(preset("llama3-1b")));
  EXPECT_EQ(llama["architectures"], nlohmann::json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(llama["rope_parameters"]["rope_type"], "llama3");
  EXPECT_EQ(llama["rope_parameters"]["rope_theta"], 500000.0);
  EXPECT_EQ(llama["rope_scaling"]["factor"], 32.0);
  EXPECT_FALSE(llama["rope_scaling"].contains("rope_theta"));
  EXPECT_EQ(llama["rope_theta"], 500000.0);
  EXPECT_EQ(nlohmann::json::parse(to_json(preset("llama-tiny")))["rope_parameters"],
            nlohmann::json::parse(R"({"rope_type": "default", "rope_theta": 10000.0})"));
}

const char* kResNet = R"({"model_type": "torchvision_resnet", "hidden_sizes": [8, 16], "depths": [1, 2]})";
const char* kCifarNet = R"({"model_type": "cifar_net"})";

TEST(Config, ImageModelsKeepShapeClassesAndNames) {
  const ModelConfig tutorial = parse_config(kCifarNet, "f");
  EXPECT_EQ(tutorial, preset("cifar-net"));
  EXPECT_EQ(tutorial.image_CHW, (Shape{3, 32, 32}));
  for (const char* changes : {"{}", R"({"image_size": 28, "num_channels": 1})", R"({"image_size": [16, 40]})",
                              R"({"num_labels": 2, "id2label": {"0": "a \"b\"", "1": "c"}})"}) {
    const ModelConfig config = parse_config(with(kCifarNet, changes), "f");
    EXPECT_EQ(parse_config(to_json(config), "f"), config) << changes;
  }
  EXPECT_EQ(parse_config(with(kCifarNet, R"({"image_size": [16, 40]})"), "f").image_CHW, (Shape{3, 16, 40}));
  for (const char* name : {"cifar-net", "lenet", "alexnet", "vgg11", "resnet20", "resnet18", "resnet34", "resnet50"})
    EXPECT_EQ(parse_config(to_json(preset(name)), "f"), preset(name)) << name;
}

struct Hostile {
  const char* base;
  const char* changes;
  const char* key;  // the key that the error message must name
  const char* says;
};

class HostileConfig : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileConfig, IsRefusedByTheKeysName) {
  const auto& [base, changes, key, says] = GetParam();
  const std::string message = complaint(with(base, changes));
  EXPECT_THAT(message, HasSubstr("`" + std::string(key) + "`"));
  EXPECT_THAT(message, HasSubstr(says));
}

INSTANTIATE_TEST_SUITE_P(
    Table, HostileConfig,
    ::testing::Values(
        Hostile{kGpt2, R"({"model_type": "<remove>"})", "model_type", "got nothing"},
        Hostile{kGpt2, R"({"model_type": "bert"})", "model_type", "gpt2, llama, mistral, qwen2"},
        Hostile{kCifarNet, R"({"image_size": 15})", "image_size", "from 16 to 16384, got 15"},
        Hostile{R"({"model_type": "vgg11"})", R"({"image_size": 31})", "image_size", "from 32 to 16384, got 31"},
        Hostile{R"({"model_type": "alexnet"})", R"({"dropout": 1})", "dropout", "got 1"},
        Hostile{kCifarNet, R"({"hidden_sizes": [6, 16, 120]})", "hidden_sizes", "a list of 4 whole numbers from 1 to 65536"},
        Hostile{kResNet, R"({"hidden_sizes": "<remove>"})", "hidden_sizes", "a list of 1 to 16 whole numbers"},
        Hostile{kResNet, R"({"hidden_sizes": [8, 0]})", "hidden_sizes", "from 1 to 65536"},
        Hostile{kResNet, R"({"hidden_sizes": [8, 1e3]})", "hidden_sizes", "from 1 to 65536"},
        Hostile{kResNet, R"({"depths": [1]})", "depths", "a list of 2 whole numbers"},
        Hostile{kResNet, R"({"layer_type": "wide"})", "layer_type", "basic or bottleneck"},
        Hostile{kCifarNet, R"({"image_size": [32]})", "image_size", "height, width"},
        Hostile{kCifarNet, R"({"image_size": [32, -1]})", "image_size.width", "got -1"},
        Hostile{kCifarNet, R"({"image_size": {"height": 32}})", "image_size", "got an object"},
        Hostile{kCifarNet, R"({"num_channels": 2})", "num_channels", "1 (grey) or 3 (RGB)"},
        Hostile{kCifarNet, R"({"num_labels": 0})", "num_labels", "from 1 to"},
        Hostile{kCifarNet, R"({"num_labels": 2, "id2label": {"0": "a"}})", "id2label", "a name for each number from 0 to 1"},
        Hostile{kCifarNet, R"({"num_labels": 2, "id2label": {"0": "a", "2": "b"}})", "id2label.1", "a text"},
        Hostile{kCifarNet, R"({"num_labels": 1, "id2label": {"0": "a\u001b[2J"}})", "id2label.0", "without control characters"},
        Hostile{kCifarNet, R"({"num_labels": 1, "id2label": {"0": 7}})", "id2label.0", "got 7"},
        Hostile{kGpt2, R"({"model_type": 7})", "model_type", "got 7"}, Hostile{kGpt2, R"({"n_layer": "<remove>"})", "n_layer", "required"},
        Hostile{kGpt2, R"({"n_layer": null})", "n_layer", "got null"},
        Hostile{kGpt2, R"({"n_layer": "twelve"})", "n_layer", "got \"twelve\""},
        Hostile{kGpt2, R"({"n_layer": 12.0})", "n_layer", "whole number"}, Hostile{kGpt2, R"({"n_layer": true})", "n_layer", "got true"},
        Hostile{kGpt2, R"({"n_layer": 0})", "n_layer", "from 1 to"}, Hostile{kGpt2, R"({"n_layer": -3})", "n_layer", "got -3"},
        Hostile{kGpt2, R"({"n_layer": 1000000000})", "n_layer", "got 1000000000"},
        Hostile{kGpt2, R"({"n_embd": 18446744073709551615})", "n_embd", "got 18446744073709551615"},
        Hostile{kGpt2, R"({"n_embd": 33})", "n_embd", "multiple of `n_head` (2)"},
        Hostile{kGpt2, R"({"n_embd": [32]})", "n_embd", "an array of 1 entries"}, Hostile{kGpt2, R"({"n_head": 0})", "n_head", "from 1 to"},
        Hostile{kGpt2, R"({"vocab_size": 9223372036854775807})", "vocab_size", "whole number"},
        Hostile{kGpt2, R"({"n_positions": 99999999999})", "n_positions", "whole number"},
        Hostile{kGpt2, R"({"n_inner": 0})", "n_inner", "from 1 to"},
        Hostile{kGpt2, R"({"activation_function": "swiglu"})", "activation_function", "gelu_new"},
        Hostile{kGpt2, R"({"layer_norm_epsilon": 0})", "layer_norm_epsilon", "above 0"},
        Hostile{kGpt2, R"({"layer_norm_epsilon": "1e-5"})", "layer_norm_epsilon", "a number"},
        Hostile{kGpt2, R"({"attn_pdrop": 1.0})", "attn_pdrop", "below 1"},
        Hostile{kGpt2, R"({"resid_pdrop": -0.1})", "resid_pdrop", "at least 0"},
        Hostile{kGpt2, R"({"embd_pdrop": false})", "embd_pdrop", "got false"},
        Hostile{kGpt2, R"({"tie_word_embeddings": 1})", "tie_word_embeddings", "true or false"},
        Hostile{kGpt2, R"({"scale_attn_weights": "yes"})", "scale_attn_weights", "true or false"},
        Hostile{kGpt2, R"({"initializer_range": -1})", "initializer_range", "at least 0"},
        Hostile{kGpt2, R"({"eos_token_id": [1, "two"]})", "eos_token_id", "token ids"},
        Hostile{kGpt2, R"({"bos_token_id": 4294967296})", "bos_token_id", "whole number"},
        Hostile{kGpt2, R"({"add_cross_attention": true})", "add_cross_attention", "not supported"},
        Hostile{kGpt2, R"({"quantization_config": {"bits": 4}})", "quantization_config", "not supported"},
        Hostile{kGpt2, R"({"pruned_heads": {"0": [1]}})", "pruned_heads", "not supported"},
        Hostile{kGpt2, R"({"model_type": "own_model", "auto_map": {"AutoModel": "code.py"}})", "model_type", "never run"},
        Hostile{kLlama, R"({"sliding_window": 4096})", "sliding_window", "not supported"},
        Hostile{kLlama, R"({"layer_types": ["full_attention", "sliding_attention"]})", "layer_types", "full_attention"},
        Hostile{kLlama, R"({"pretraining_tp": 2})", "pretraining_tp", "not supported"},
        Hostile{kLlama, R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor", "not supported"},
        Hostile{kLlama, R"({"hidden_act": "gelu"})", "hidden_act", "silu"},
        Hostile{kLlama, R"({"hidden_size": 34})", "hidden_size", "multiple of `num_attention_heads` (4)"},
        Hostile{kLlama, R"({"num_key_value_heads": 3})", "num_attention_heads", "multiple of `num_key_value_heads` (3)"},
        Hostile{kLlama, R"({"num_key_value_heads": 8})", "num_key_value_heads", "from 1 to 4"},
        Hostile{kLlama, R"({"head_dim": 7})", "head_dim", "even"},
        Hostile{kLlama, R"({"hidden_size": 12})", "head_dim", "even head width (it is 3)"},
        Hostile{kLlama, R"({"intermediate_size": "<remove>"})", "intermediate_size", "required"},
        Hostile{kLlama, R"({"rms_norm_eps": 2})", "rms_norm_eps", "at most 1"},
        Hostile{kLlama, R"({"rope_theta": 0})", "rope_theta", "above 1"},
        Hostile{kLlama, R"({"rope_scaling": "linear"})", "rope_scaling", "an object"},
        Hostile{kLlama, R"({"rope_scaling": {"type": "dynamic", "factor": 2}})", "rope_scaling.type", "llama3"},
        Hostile{kLlama, R"({"rope_parameters": {"rope_type": "longrope", "factor": 2}})", "rope_parameters.rope_type", "llama3"},
        Hostile{kLlama, R"({"rope_scaling": {"type": "linear"}})", "rope_scaling.factor", "required"},
        Hostile{kLlama, R"({"rope_scaling": {"type": "linear", "factor": 0.5}})", "rope_scaling.factor", "at least 1"},
        Hostile{kLlama, R"({"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2}})", "rope_scaling.beta_fast",
                "2"},
        Hostile{kLlama, R"({"rope_scaling": {"type": "yarn", "factor": 4, "low_freq_factor": 1}})", "rope_scaling.low_freq_factor",
                "no such key"},
        Hostile{kLlama, R"({"rope_parameters": {"rope_type": "default", "factor": 2}})", "rope_parameters.factor", "no such key"},
        Hostile{kLlama, R"({"rope_parameters": {"rope_type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4,
                            "original_max_position_embeddings": 8192}})",
                "rope_parameters.factor", "required"},
        Hostile{kLlama, R"({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
                            "original_max_position_embeddings": 8192}})",
                "rope_parameters.high_freq_factor", "above 4"},
        Hostile{kLlama, R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}})", "partial_rotary_factor",
                "not supported"},
        Hostile{kLlama, R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})", "rope_parameters",
                "500000"},
        Hostile{kLlama, R"({"rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_type": "llama3", "factor": 8,
                            "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}})",
                "rope_parameters", "rope_scaling"}));

// Gives the config of a Gemma 2 model, for tests of keys that GPT-2 and Llama do not have.
const char* kOthers =
    R"({"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 80,
                          "max_position_embeddings": 64, "vocab_size": 97, "head_dim": 8, "model_type": "gemma2"})";
INSTANTIATE_TEST_SUITE_P(
    Others, HostileConfig,
    ::testing::Values(
        Hostile{kOthers, R"({"model_type": "mistral3", "text_config": {"hidden_size": 8}})", "text_config.num_hidden_layers",
                "whole number"},
        Hostile{kOthers, R"({"hidden_activation": "gelu"})", "hidden_activation", "gelu_pytorch_tanh"},
        Hostile{kOthers, R"({"attn_logit_softcapping": 0})", "attn_logit_softcapping", "above 0"},
        Hostile{kOthers, R"({"final_logit_softcapping": "30"})", "final_logit_softcapping", "a number"},
        Hostile{kOthers, R"({"query_pre_attn_scalar": -1})", "query_pre_attn_scalar", "above 0"},
        Hostile{kOthers, R"({"use_bidirectional_attention": true})", "use_bidirectional_attention", "not supported"},
        Hostile{kOthers, R"({"sliding_window": 0})", "sliding_window", "from 1 to"},
        Hostile{kOthers, R"({"sliding_window": null, "layer_types": ["sliding_attention", "full_attention"]})", "sliding_window",
                "layer_types"},
        Hostile{kOthers, R"({"layer_types": ["full_attention"]})", "layer_types", "2 layers"},
        Hostile{kOthers, R"({"layer_types": "full_attention"})", "layer_types", "2 layers"},
        Hostile{kOthers, R"({"layer_types": ["full_attention", "linear_attention"]})", "layer_types", "sliding_attention"},
        Hostile{kOthers, R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor", "not supported"},
        Hostile{kOthers, R"({"model_type": "gemma3_text", "sliding_window_pattern": 0})", "sliding_window_pattern", "from 1 to"},
        Hostile{kOthers, R"({"model_type": "gemma3_text", "rope_parameters": {"full_attention": {"rope_type": "default"}}})",
                "rope_parameters", "sliding_attention"},
        Hostile{kOthers,
                R"({"model_type": "gemma3_text", "rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_type": "linear",
                             "factor": 2}}})",
                "rope_parameters", "default for sliding_attention"},
        Hostile{kOthers,
                R"({"model_type": "gemma3_text", "rope_parameters": {"full_attention": {}, "sliding_attention": {}, "other": {}}})",
                "rope_parameters", "full_attention and sliding_attention"},
        Hostile{kOthers, R"({"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1]}})",
                "rope_scaling.short_factor", "a list of 4 numbers above 0"},
        Hostile{kOthers, R"({"model_type": "phi3", "original_max_position_embeddings": 1, "rope_scaling": {"type": "su"}})",
                "rope_scaling.original_max_position_embeddings", "at least 2"},
        Hostile{kOthers, R"({"model_type": "llama", "rope_scaling": {"type": "yarn", "factor": 2, "llama_4_scaling_beta": 1}})",
                "rope_scaling.llama_4_scaling_beta", "no meaning"},
        Hostile{kOthers, R"({"model_type": "phi3", "partial_rotary_factor": 0.4})", "partial_rotary_factor", "even number"},
        Hostile{kOthers, R"({"model_type": "phi3", "resid_pdrop": 0.1})", "resid_pdrop", "not supported"},
        Hostile{kOthers, R"({"model_type": "mistral", "attention_bias": true})", "attention_bias", "not supported"},
        Hostile{kOthers, R"({"model_type": "qwen2", "hidden_act": "gelu"})", "hidden_act", "silu"},
        Hostile{kOthers, R"({"model_type": "qwen2", "use_sliding_window": 1})", "use_sliding_window", "true or false"},
        Hostile{kOthers, R"({"model_type": "olmo2", "sliding_window": 16})", "sliding_window", "not supported"},
        Hostile{kOthers, R"({"model_type": "qwen3", "num_experts": 8})", "num_experts", "not supported"}));

INSTANTIATE_TEST_SUITE_P(
    Experts, HostileConfig,
    ::testing::Values(
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "num_experts": 0})", "num_experts", "from 1 to"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "num_experts": 1000000})", "num_experts", "from 1 to"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "num_experts": 8, "num_local_experts": 4})", "num_experts", "num_local_experts"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "num_experts": "8"})", "num_experts", "whole number"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "num_local_experts": 4, "num_experts_per_tok": 5})", "num_experts_per_tok",
                "from 1 to 4"},
        Hostile{kOthers, R"({"model_type": "mixtral", "num_experts_per_tok": 0})", "num_experts_per_tok", "from 1 to 8"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "moe_intermediate_size": 0})", "moe_intermediate_size", "from 1 to"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "norm_topk_prob": 1})", "norm_topk_prob", "true or false"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "decoder_sparse_step": 0})", "decoder_sparse_step", "from 1 to"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "mlp_only_layers": [2]})", "mlp_only_layers", "from 0 to 1"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "mlp_only_layers": [-1]})", "mlp_only_layers", "from 0 to 1"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "mlp_only_layers": [18446744073709551615]})", "mlp_only_layers", "from 0 to 1"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "mlp_only_layers": [0.0]})", "mlp_only_layers", "from 0 to 1"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "mlp_only_layers": 1})", "mlp_only_layers", "a list"},
        Hostile{kOthers, R"({"model_type": "mixtral", "output_router_logits": 1})", "output_router_logits", "true or false"},
        Hostile{kOthers, R"({"model_type": "mixtral", "router_jitter_noise": 0.1})", "router_jitter_noise", "not supported"},
        Hostile{kOthers, R"({"model_type": "mixtral", "router_aux_loss_coef": -1})", "router_aux_loss_coef", "at least 0"},
        Hostile{kOthers, R"({"model_type": "mixtral", "attention_bias": true})", "attention_bias", "not supported"},
        Hostile{kOthers, R"({"model_type": "mixtral", "quantization_config": {"bits": 4}})", "quantization_config", "not supported"},
        Hostile{kOthers, R"({"model_type": "qwen3_moe", "layer_types": ["linear_attention", "full_attention"]})", "layer_types",
                "full_attention"}));

constexpr const char* kFamilies[] = {"mistral-tiny", "mistral-window-tiny", "qwen2-tiny",  "qwen3-tiny",
                                     "gemma2-tiny",  "gemma3-text-tiny",    "phi3-tiny",   "phi3-partial-tiny",
                                     "olmo2-tiny",   "qwen3-moe-tiny",      "mixtral-tiny"};

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Published checkpoints have the config keys of transformers 4. These keys must give the model that those of transformers 5 give.
TEST(Families, SayTheSameInTheWordsOfTransformers4And5) {
  for (const char* model : kFamilies) {
    const ModelConfig now = read_config(test::data(model)), before = parse_config(text_of(test::data(model) / "config_v4.json"), model);
    EXPECT_TRUE(now == before) << model << "\n" << to_json(now) << to_json(before);
    EXPECT_TRUE(parse_config(to_json(now, DType::bf16), "f") == now) << model << "\n" << to_json(now);
  }
}

TEST(Families, HaveWhatTheirConfigsSay) {
  const auto of = [](const char* model) { return read_config(test::data(model)); };
  EXPECT_EQ(of("mistral-window-tiny").window, 6);
  EXPECT_EQ(of("mistral-window-tiny").windowed, (std::vector<bool>{true, true}));
  EXPECT_EQ(of("qwen2-tiny").window, 0) << "use_sliding_window is false";
  EXPECT_TRUE(of("qwen2-tiny").attention_bias);
  const ModelConfig gemma2 = of("gemma2-tiny"), gemma3 = of("gemma3-text-tiny");
  EXPECT_EQ(gemma2.windowed, (std::vector<bool>{true, false}));
  EXPECT_EQ(gemma2.attention_softcap, 2);
  EXPECT_EQ(gemma2.logit_softcap, 3);
  EXPECT_EQ(gemma2.query_scalar, 12);
  EXPECT_EQ(gemma3.attention_softcap, 0);
  EXPECT_EQ(gemma3.rope_theta, 1e6);
  EXPECT_EQ(gemma3.local_rope_theta, 1e4);
  EXPECT_EQ(of("phi3-partial-tiny").rotary_dim, 6);
  EXPECT_EQ(of("phi3-tiny").rotary_dim, 0);
}

// Published configs leave out keys. A missing key takes the default of transformers' config class.
TEST(Families, MissingKeysHaveTransformersDefaults) {
  const std::string bare = R"({"hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8, "intermediate_size": 80,
                               "max_position_embeddings": 64, "vocab_size": 97, "model_type": )";
  const auto of = [&](const std::string& type) { return parse_config(bare + "\"" + type + "\"}", "f"); };
  EXPECT_EQ(of("mistral").window, 4096);
  EXPECT_EQ(of("mistral").kv_heads, 8);
  EXPECT_EQ(of("qwen3").head_dim, 128);
  EXPECT_EQ(of("qwen2").end_tokens, std::vector<i64>());
  EXPECT_EQ(of("gemma2").attention_softcap, 50);
  EXPECT_EQ(of("gemma2").logit_softcap, 30);
  EXPECT_EQ(of("gemma2").query_scalar, 256);
  EXPECT_TRUE(of("gemma2").tied_head);
  EXPECT_EQ(of("gemma3_text").windowed, (std::vector<bool>{true, true, true, true, true, false, true, true, true, true, true, false}));
  EXPECT_EQ(of("gemma3_text").rope_theta, 1e6);
  EXPECT_EQ(of("phi3").norm_eps, 1e-5);
  EXPECT_EQ(of("olmo2").end_tokens, std::vector<i64>{50279});
  EXPECT_TRUE(of("qwen3_moe").experts == (ExpertsConfig{128, 8, 768, false, {}, 0.001}));
  EXPECT_EQ(of("qwen3_moe").kv_heads, 4);
  EXPECT_EQ(of("qwen3_moe").head_dim, 64);
  EXPECT_TRUE(of("mixtral").experts == (ExpertsConfig{8, 2, 80, true, {}, 0.001}));
  EXPECT_EQ(of("mixtral").rope_theta, 1e6);
  EXPECT_EQ(of("mixtral").norm_eps, 1e-5);
  EXPECT_EQ(of("mixtral").window, 0);
}

TEST(Families, ExpertsAreReadAndWritten) {
  const ModelConfig qwen = read_config(test::data("qwen3-moe-tiny")), mixtral = read_config(test::data("mixtral-tiny"));
  EXPECT_TRUE(qwen.experts == (ExpertsConfig{4, 2, 12, true, {}, 0.05}));
  EXPECT_TRUE(mixtral.experts == (ExpertsConfig{4, 2, 12, true, {}, 0.05}));
  EXPECT_EQ(qwen.mlp_width, 40);
  EXPECT_TRUE(qwen.has_experts(0) && qwen.has_experts(1));
  EXPECT_FALSE(read_config(test::data("qwen3-tiny")).has_experts(0));
  const auto some = parse_config(with(kOthers, R"({"model_type": "qwen3_moe", "num_hidden_layers": 7, "decoder_sparse_step": 2,
      "mlp_only_layers": [3, 0, 3], "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "use_sliding_window": true,
      "sliding_window": 5, "router_aux_loss_coef": 0, "attention_bias": true})"),
                                 "f");
  EXPECT_TRUE(some.experts == (ExpertsConfig{6, 3, 20, false, {0, 2, 3, 4, 6}, 0}));
  EXPECT_FALSE(some.has_experts(3));
  EXPECT_TRUE(some.has_experts(5));
  EXPECT_EQ(some.windowed, std::vector<bool>(7, true)) << "of all layers";
  EXPECT_TRUE(parse_config(to_json(some), "f") == some) << to_json(some);
  const auto written = nlohmann::json::parse(to_json(some));
  EXPECT_EQ(written["num_experts"], 6) << "transformers 4";
  EXPECT_EQ(written["num_local_experts"], 6) << "transformers 5";
  EXPECT_FALSE(nlohmann::json::parse(to_json(mixtral)).contains("norm_topk_prob"));
}

TEST(Families, WindowsByTheOldRules) {
  const auto qwen = parse_config(
      with(kOthers, R"({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1})"), "f");
  EXPECT_EQ(qwen.windowed, (std::vector<bool>{false, true}));
  EXPECT_EQ(qwen.window, 16);
  EXPECT_TRUE(parse_config(to_json(qwen), "f") == qwen);
  const auto all_full = parse_config(with(kOthers, R"({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 16})"), "f");
  EXPECT_TRUE(all_full.windowed.empty()) << "28 layers come before the first window";
}

TEST(Families, WriteRopeOfEveryKind) {
  for (const char* rope :
       {R"({"rope_scaling": {"type": "linear", "factor": 4}})",
        R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}})",
        R"({"rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.7, "truncate": false}})"}) {
    const ModelConfig config = parse_config(with(kLlama, rope), "f");
    ASSERT_TRUE(config.rope_scaling) << rope;
    EXPECT_TRUE(parse_config(to_json(config), "f") == config) << rope << to_json(config);
  }
}

TEST(HostileConfig, NotJson) {
  for (const char* text : {"", "{", "[1, 2]", "nonsense", "{\"model_type\": \"gpt2\",}", "\xff\xfe", "{\"n_embd\": 1e999}"}) {
    EXPECT_THAT(complaint(text), HasSubstr("expected")) << text;
  }
}

TEST(HostileConfig, DeepNestingIsRefusedBeforeItIsParsed) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THAT(complaint(R"({"model_type": )" + deep + "}"), HasSubstr("expected values nested at most 200 deep"));
}

TEST(Config, AFolderWithoutOneSaysSo) {
  try {
    read_config(test::data("no-such-folder"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    EXPECT_THAT(error.what(), HasSubstr("config.json"));
  }
}

}  // namespace
}  // namespace spillway::models::config_test
