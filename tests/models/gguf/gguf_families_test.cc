// Tests each model family under llama.cpp's names: which tensors a GGUF file has, and which models are refused. Takes 0.2 s.
#include <gmock/gmock.h>

#include <map>

#include "models/gguf/gguf_architecture.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::models::gguf_families_test {
namespace {

using namespace spillway::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

std::vector<GgufPart> parts_of(const nn::Sequential& model, const ModelConfig& config) { return gguf_parts(config, model); }

// Returns the names of the tensors of layer 0 and of those outside layers. Every layer must have as many tensors as layer 0.
std::vector<std::string> names_of(const std::string& folder) {
  const ModelConfig config = read_config(test::data(folder));
  const nn::Sequential model = build(config, DType::f32);
  std::vector<std::string> names;
  std::map<std::string, int> by_layer;
  for (const GgufPart& part : parts_of(model, config)) {
    if (part.name.starts_with("blk.")) ++by_layer[part.name.substr(0, 6)];
    if (!part.name.starts_with("blk.") || part.name.starts_with("blk.0.")) names.push_back(part.name);
  }
  EXPECT_EQ(static_cast<i64>(by_layer.size()), config.layers);
  for (const auto& [layer, count] : by_layer) EXPECT_EQ(count, by_layer["blk.0."]) << layer;
  return names;
}

std::vector<std::string> with(std::vector<std::string> names, const std::vector<std::string>& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}
std::vector<std::string> layer(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) all.push_back("blk.0." + name + ".weight");
  return all;
}

const std::vector<std::string> kTied{"token_embd.weight", "output_norm.weight"};
const std::vector<std::string> kUntied = with(kTied, {"output.weight"});
const std::vector<std::string> kAttention = layer({"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm"});
const std::vector<std::string> kMlp = layer({"ffn_gate", "ffn_up", "ffn_down"});
const std::vector<std::string> kExperts = layer({"ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"});
const std::vector<std::string> kQkNorms = layer({"attn_q_norm", "attn_k_norm"}), kAfter = layer({"post_attention_norm", "post_ffw_norm"});

TEST(GgufFamilies, HaveLlamaCppsNames) {
  EXPECT_THAT(names_of("llama-tiny"), UnorderedElementsAreArray(with(kUntied, with(kAttention, kMlp))));
  EXPECT_THAT(names_of("llama3rope-tiny"), UnorderedElementsAreArray(with(kTied, with(kAttention, kMlp))));
  EXPECT_THAT(names_of("mistral-tiny"), UnorderedElementsAreArray(with(kUntied, with(kAttention, kMlp))));
  EXPECT_THAT(names_of("mixtral-tiny"), UnorderedElementsAreArray(with(kUntied, with(kAttention, kExperts))));
  EXPECT_THAT(names_of("qwen2-tiny"),
              UnorderedElementsAreArray(
                  with(kTied, with(with(kAttention, kMlp), {"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias"}))));
  EXPECT_THAT(names_of("qwen3-tiny"), UnorderedElementsAreArray(with(kUntied, with(with(kAttention, kMlp), kQkNorms))));
  EXPECT_THAT(names_of("qwen3-moe-tiny"), UnorderedElementsAreArray(with(kUntied, with(with(kAttention, kExperts), kQkNorms))));
  EXPECT_THAT(names_of("gemma2-tiny"), UnorderedElementsAreArray(with(kTied, with(with(kAttention, kMlp), kAfter))));
  EXPECT_THAT(names_of("gemma3-text-tiny"), UnorderedElementsAreArray(with(kTied, with(with(kAttention, kMlp), with(kAfter, kQkNorms)))));
  EXPECT_THAT(names_of("phi3-tiny"),
              UnorderedElementsAreArray(with(kUntied, layer({"attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down"}))));
  EXPECT_THAT(names_of("olmo2-tiny"),
              UnorderedElementsAreArray(
                  with(kUntied, with(with(layer({"attn_q", "attn_k", "attn_v", "attn_output"}), kMlp), with(kAfter, kQkNorms)))));
  std::vector<std::string> gpt2{"token_embd.weight", "position_embd.weight", "output_norm.weight", "output_norm.bias"};
  for (const char* name : {"attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down"})
    gpt2 = with(gpt2, {std::string("blk.0.") + name + ".weight", std::string("blk.0.") + name + ".bias"});
  EXPECT_THAT(names_of("gpt2-tiny"), UnorderedElementsAreArray(gpt2));
}

TEST(GgufFamilies, LieAsLlamaCppWantsThem) {
  const auto part = [](const std::string& folder, const std::string& name) {
    const ModelConfig config = read_config(test::data(folder));
    const nn::Sequential model = build(config, DType::f32);
    for (GgufPart& one : gguf_parts(config, model)) {
      if (one.name == name) return std::pair(one, one.extents());
    }
    throw Error(ErrorCode::bug, "no " + name);
  };
  using Order = GgufPart::Order;
  EXPECT_EQ(part("llama-tiny", "blk.0.attn_k.weight").first.order, Order::interleaved);
  EXPECT_EQ(part("llama-tiny", "blk.0.attn_v.weight").first.order, Order::as_it_is);
  EXPECT_EQ(part("qwen2-tiny", "blk.0.attn_k.weight").first.order, Order::as_it_is);
  EXPECT_EQ(part("llama-odd", "blk.0.attn_q.bias").first.order, Order::interleaved);
  EXPECT_THAT(part("llama-tiny", "blk.0.ffn_down.weight").second, ElementsAre(80, 32));
  EXPECT_THAT(part("mixtral-tiny", "blk.1.ffn_down_exps.weight").second, ElementsAre(12, 24, 4));
  EXPECT_TRUE(part("mixtral-tiny", "blk.1.ffn_gate_inp.weight").first.always_f32);
  EXPECT_EQ(part("gpt2-tiny", "blk.0.attn_qkv.weight").first.order, Order::transposed);
  EXPECT_THAT(part("gpt2-tiny", "blk.0.attn_qkv.weight").second, ElementsAre(32, 96));
  EXPECT_TRUE(part("gpt2-tiny", "position_embd.weight").first.always_f32);
  EXPECT_EQ(part("gemma2-tiny", "blk.0.post_ffw_norm.weight").first.added, 1);
  EXPECT_EQ(part("olmo2-tiny", "blk.0.post_ffw_norm.weight").first.added, 0);
  // Heads have width 8, but the config divides scores by the root of 12. The exported weight makes up for the difference.
  EXPECT_DOUBLE_EQ(part("gemma2-tiny", "blk.0.attn_q.weight").first.factor, std::sqrt(8.0 / 12));
  EXPECT_DOUBLE_EQ(part("gemma3-text-tiny", "blk.0.attn_q_norm.weight").first.factor, std::sqrt(8.0 / 12));
}

TEST(GgufFamilies, PublishedGemmasNeedNoOtherScale) {
  for (const char* name : {"gemma2-2b", "gemma2-9b", "gemma2-27b", "gemma3-1b"}) {
    ModelConfig config = preset(name);
    EXPECT_NO_THROW(gguf_architecture(config)) << name;
    EXPECT_EQ(gguf_window_period(config), config.family == Family::gemma2 ? 2 : 6) << name;
    config.vocabulary = 8, config.mlp_width = 8;  // makes the model smaller, since its sizes do not matter to the test
    const nn::Sequential model = build(config, DType::f32);
    for (const GgufPart& part : gguf_parts(config, model)) EXPECT_EQ(part.factor, 1) << name << " " << part.name;
  }
}

TEST(GgufFamilies, WhatLlamaCppComputesOtherwiseIsRefused) {
  const auto refused = [](const std::string& folder, const std::function<void(ModelConfig&)>& change) {
    ModelConfig config = read_config(test::data(folder));
    EXPECT_NO_THROW(gguf_architecture(config)) << folder;
    change(config);
    return error_of(ErrorCode::usage, [&] { gguf_architecture(config); });
  };
  EXPECT_THAT(refused("gpt2-tiny", [](ModelConfig& c) { c.activation = Activation::relu; }), HasSubstr("expected GPT-2 with gelu_new"));
  EXPECT_THAT(refused("gpt2-tiny", [](ModelConfig& c) { c.scale_attention_by_layer = true; }),
              HasSubstr("scale_attn_by_inverse_layer_idx"));
  EXPECT_THAT(refused("qwen3-moe-tiny", [](ModelConfig& c) { c.experts->normalised = false; }), HasSubstr("norm_topk_prob"));
  EXPECT_THAT(refused("qwen3-moe-tiny", [](ModelConfig& c) { c.experts->dense_layers = {1}; }), HasSubstr("mlp_only_layers"));
  EXPECT_THAT(refused("qwen3-tiny", [](ModelConfig& c) { c.attention_bias = true; }), HasSubstr("without attention_bias"));
  EXPECT_THAT(refused("gemma2-tiny", [](ModelConfig& c) { c.logit_softcap = 0; }), HasSubstr("final_logit_softcapping"));
  EXPECT_THAT(refused("gemma2-tiny", [](ModelConfig& c) { c.windowed = {false, true}; }), HasSubstr("layer_types"));
  EXPECT_THAT(refused("gemma3-text-tiny", [](ModelConfig& c) { c.window = 0, c.windowed.clear(); }), HasSubstr("layer_types"));
  EXPECT_THAT(refused("gemma3-text-tiny", [](ModelConfig& c) { c.tied_head = false; }), HasSubstr("tied head"));
  EXPECT_THAT(refused("qwen2-tiny", [](ModelConfig& c) { c.head_dim = 8; }), HasSubstr("got 4 heads of width 8 in a model of width 24"));
  EXPECT_THAT(refused("qwen2-tiny", [](ModelConfig& c) { c.rope_scaling = RopeScaling(); }), HasSubstr("rope_type llama3"));
  EXPECT_THAT(error_of(ErrorCode::usage, [] { gguf_architecture(preset("resnet18")); }), HasSubstr("expected a language model"));
}

}  // namespace
}  // namespace spillway::models::gguf_families_test
