// Compares LoRA adapters with PEFT: logits, loss, gradients and merged weights of the references in tests/data/lora.
#include "models/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "models/model.h"
#include "nn/eager.h"
#include "tests/models/support_reference.h"
#include "tests/support/fixtures.h"
#include "tests/support/temporary_folder.h"

namespace spillway::models::lora_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string folder_of(const std::string& adapter) { return "lora/" + adapter; }
std::string base_of(const std::string& adapter) { return adapter.starts_with("gpt2") ? "gpt2-tiny" : "llama-tiny"; }

ModelConfig config_of(const std::string& adapter) {
  ModelConfig config = read_config(test::data(base_of(adapter)));
  config.lora = read_adapter_config(test::data(folder_of(adapter)));
  return config;
}

std::unique_ptr<WeightSource> weights_of(const std::string& adapter, const nn::Sequential& model) {
  return std::make_unique<AdaptedWeights>(std::make_unique<FolderWeights>(model, test::data(base_of(adapter))),
                                          std::make_unique<AdapterFolder>(model, test::data(folder_of(adapter))));
}

using Case = std::pair<const char*, DType>;
class Adapter : public ::testing::TestWithParam<Case> {
 protected:
  Adapter() {
    for (const auto& p : model.parameters) p->frozen = !is_adapter(*p);
    fill(model, *weights_of(name, model));
  }
  double loss() {
    autograd::Tape tape(&weights);
    nn::Context context;
    context.tape = &tape;
    context.batch = &batch;
    context.loss_factor = 1 / static_cast<double>(batch.counted_targets);
    const nn::Variable sum = nn::run(model, context);
    sum.backward();
    return sum.value.item() / static_cast<double>(batch.counted_targets);
  }

  const std::string name = GetParam().first;
  const DType dtype = GetParam().second;
  const double allowed = dtype == DType::f64 ? 1e-12 : 1e-6;
  const ModelConfig config = config_of(name);
  const nn::Sequential model = build(config, dtype);
  nn::EagerParameters weights{model};
  const test::Reference reference{folder_of(name), dtype};
  const MicroBatch batch = reference.batch("input_ids", "labels");
};

TEST_P(Adapter, LossAndGradientsArePefts) {
  const double want = reference.value("loss");
  EXPECT_NEAR(loss(), want, allowed * 10);
  double squares = 0;
  size_t trained = 0;
  for (const auto& p : model.parameters) {
    if (p->frozen) {
      EXPECT_FALSE(weights.gradient(p->id).defined()) << p->name;
      continue;
    }
    ++trained;
    const std::vector<double> got = test::as_doubles(weights.gradient(p->id));
    EXPECT_LE(test::worst_excess(got, reference.values("grad/" + peft_name(*p)), allowed, 0), 0) << p->name;
    for (const double g : got) squares += g * g;
  }
  EXPECT_EQ(trained, 2 * adapted_modules(model).size());
  EXPECT_NEAR(std::sqrt(squares), reference.value("grad_norm"), allowed * 10);
}

TEST_P(Adapter, LogitsWithItWithoutItAndMergedArePefts) {
  const i64 last = batch.tokens_BT.size(1) - 1;
  const auto logits = [&](const nn::Sequential& m) {
    nn::Context context;
    context.batch = &batch;
    context.mode = nn::Mode::generate;
    context.logits_position = last;
    return test::as_doubles(nn::run(m, context).value);
  };
  const i64 B = batch.tokens_BT.size(0), T = last + 1, V = config.vocabulary;
  const auto wanted = [&](const char* of) {
    const std::vector<double> all = reference.values(of);
    std::vector<double> rows;
    for (i64 b = 0; b < B; ++b) rows.insert(rows.end(), all.begin() + (b * T + last) * V, all.begin() + (b * T + last + 1) * V);
    return rows;
  };
  const double near = dtype == DType::f64 ? 1e-12 : 1e-5;
  EXPECT_LE(test::worst_excess(logits(model), wanted("logits"), near, 0), 0);
  ModelConfig plain = config;
  plain.lora.reset();
  const nn::Sequential bare = build(plain, dtype);
  const nn::EagerParameters bare_weights(bare);
  fill(bare, FolderWeights(bare, test::data(base_of(name))));
  EXPECT_LE(test::worst_excess(logits(bare), wanted("base_logits"), near, 0), 0);
  EXPECT_GT(test::worst_excess(logits(bare), wanted("logits"), 1e-3, 0), 0) << "planted: the adapter does something";
  fill(bare, MergedWeights(config, model, weights_of(name, model)));
  EXPECT_LE(test::worst_excess(logits(bare), wanted("merged_logits"), near, 0), 0);
  if (dtype != DType::f64) return;
  for (const std::string& module : adapted_modules(model)) {
    const auto p = std::ranges::find(bare.parameters, module + ".weight", &nn::Parameter::name);
    ASSERT_NE(p, bare.parameters.end());
    EXPECT_LE(test::worst_excess(test::as_doubles((*p)->value()), reference.values("merged/" + (*p)->name), 1e-13, 0), 0) << (*p)->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Peft, Adapter,
                         ::testing::Values(Case{"llama-qv", DType::f32}, Case{"llama-qv", DType::f64}, Case{"llama-qv-rslora", DType::f64},
                                           Case{"llama-all-linear", DType::f32}, Case{"llama-all-linear", DType::f64},
                                           Case{"gpt2-attn", DType::f64}, Case{"gpt2-all-linear", DType::f32},
                                           Case{"gpt2-all-linear", DType::f64}),
                         [](const auto& entry) {
                           std::string text = std::string(entry.param.first) + "_" + std::string(to_string(entry.param.second));
                           std::erase(text, '-');
                           return text;
                         });

TEST(AdapterConfig, IsReadAndWritten) {
  for (const char* adapter : {"llama-qv", "llama-qv-rslora", "llama-all-linear", "gpt2-attn", "gpt2-all-linear"}) {
    const ModelConfig config = config_of(adapter);
    EXPECT_EQ(config.lora->rank, 4);
    EXPECT_EQ(config.lora->alpha, 8);
    EXPECT_EQ(config.lora->rank_stabilized, std::string(adapter).ends_with("rslora"));
    const std::string written = adapter_json(config, adapted_modules(build(config, DType::f32)), "base");
    EXPECT_TRUE(parse_adapter_config(written, "f") == *config.lora) << written;
    EXPECT_THAT(written, HasSubstr(config.family == Family::gpt2 ? "\"fan_in_fan_out\": true" : "\"fan_in_fan_out\": false"));
  }
}

TEST(AdapterConfig, AllLinearIsAllLayersButTheHead) {
  ModelConfig config = read_config(test::data("llama-tiny"));
  config.lora = LoraConfig{4, 8};
  EXPECT_EQ(adapted_modules(build(config, DType::f32)).size(), 14u);
  const auto written = adapter_json(config, adapted_modules(build(config, DType::f32)), "base");
  const LoraConfig read = parse_adapter_config(written, "f");
  EXPECT_EQ(read.targets.size(), 14u) << "PEFT writes the list";
  config.lora = parse_adapter_config(R"({"peft_type": "LORA", "r": 2, "target_modules": "all-linear"})", "f");
  EXPECT_EQ(adapted_modules(build(config, DType::f32)).size(), 14u);
}

TEST(AdapterConfig, WhatIsNotBuiltIsRefusedByName) {
  const auto complaint = [](const std::string& more) {
    try {
      parse_adapter_config(R"({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"])" + more + "}", "some/adapter_config.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data);
      EXPECT_THAT(error.what(), HasSubstr("some/adapter_config.json"));
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(complaint(R"(, "use_dora": false, "rank_pattern": {}, "modules_to_save": null)"), "accepted");
  // Keys that change nothing are accepted: initializations with which PEFT leaves the base weights unchanged, since it reads all adapter
  // values from the file, and keys that do not concern the layers of this model.
  for (const char* harmless :
       {R"("init_lora_weights": true)", R"("init_lora_weights": false)", R"("init_lora_weights": null)",
        R"("init_lora_weights": "gaussian")", R"("init_lora_weights": "orthogonal")",
        R"("init_lora_weights": "eva", "eva_config": {"rho": 2.0})", R"("corda_config": {"a": 1})", R"("ensure_weight_tying": true)",
        R"("loftq_config": {}, "qalora_group_size": 16)", R"("layers_to_transform": [])"})
    EXPECT_EQ(complaint(std::string(", ") + harmless), "accepted") << harmless;
  for (const auto& [more, key] :
       std::vector<std::pair<std::string, std::string>>{{R"(, "use_dora": true)", "use_dora"},
                                                        {R"(, "rank_pattern": {"q_proj": 8})", "rank_pattern"},
                                                        {R"(, "alpha_pattern": {"q_proj": 8})", "alpha_pattern"},
                                                        {R"(, "modules_to_save": ["lm_head"])", "modules_to_save"},
                                                        {R"(, "layers_to_transform": [0])", "layers_to_transform"},
                                                        {R"(, "bias": "all")", "bias"},
                                                        {R"(, "r": 0)", "`r`"},
                                                        {R"(, "lora_alpha": -1)", "lora_alpha"},
                                                        {R"(, "lora_dropout": 1.5)", "lora_dropout"},
                                                        {R"(, "target_modules": ".*q_proj")", "target_modules"},
                                                        {R"(, "target_modules": [])", "target_modules"},
                                                        {R"(, "target_modules": [1])", "target_modules"},
                                                        {R"(, "target_modules": ["q_proj", "lm_head"])", "target_modules"},
                                                        {R"(, "target_modules": ["model.embed_tokens"])", "target_modules"},
                                                        {R"(, "init_lora_weights": "pissa")", "init_lora_weights"},
                                                        {R"(, "init_lora_weights": "pissa_niter_16")", "init_lora_weights"},
                                                        {R"(, "init_lora_weights": "olora")", "init_lora_weights"},
                                                        {R"(, "init_lora_weights": "corda")", "init_lora_weights"},
                                                        {R"(, "init_lora_weights": "loftq")", "init_lora_weights"},
                                                        {R"(, "init_lora_weights": "lora_ga")", "init_lora_weights"},
                                                        {R"(, "init_lora_weights": "mica")", "init_lora_weights"},
                                                        {R"(, "init_lora_weights": 1)", "init_lora_weights"},
                                                        {R"(, "lora_bias": true)", "lora_bias"},
                                                        {R"(, "layers_to_transform": 0)", "layers_to_transform"},
                                                        {R"(, "layer_replication": [[0, 2]])", "layer_replication"},
                                                        {R"(, "exclude_modules": ["q_proj"])", "exclude_modules"},
                                                        {R"(, "target_parameters": ["experts.down_proj"])", "target_parameters"},
                                                        {R"(, "trainable_token_indices": [1])", "trainable_token_indices"},
                                                        {R"(, "alora_invocation_tokens": [1, 2])", "alora_invocation_tokens"},
                                                        {R"(, "use_qalora": true)", "use_qalora"},
                                                        {R"(, "velora_config": {"scale": 1})", "velora_config"},
                                                        {R"(, "kasa_config": {"beta": 1})", "kasa_config"},
                                                        {R"(, "monteclora_config": {"num_samples": 8})", "monteclora_config"},
                                                        {R"(, "arrow_config": {"top_k": 3})", "arrow_config"},
                                                        {R"(, "use_bdlora": {"nblocks": 2})", "use_bdlora"},
                                                        {R"(, "megatron_config": {"a": 1})", "megatron_config"},
                                                        {R"(, "peft_type": "ADALORA")", "peft_type"},
                                                        {R"(, "peft_type": "IA3")", "peft_type"},
                                                        {R"(, "some_new_thing": 3)", "some_new_thing"}}) {
    EXPECT_THAT(complaint(more), HasSubstr(key));
  }
  EXPECT_THROW(parse_adapter_config("{", "f"), Error);
  EXPECT_THROW(parse_adapter_config("[]", "f"), Error);
}

// An adapter folder may have an adapter_model.bin of older PEFT versions, names with
// prefixes of wrappers, and embeddings that PEFT saves if the vocabulary was resized.
TEST(AdapterFolder, ReadsOldFilesAndNamesWhatItCannotTake) {
  const nn::Sequential model = build(config_of("llama-qv"), DType::f32);
  const test::TemporaryFolder folder;
  const auto refusal = [&] {
    try {
      AdapterFolder(model, folder.path());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal(), HasSubstr("adapter_model.safetensors or adapter_model.bin, got neither"));
  std::filesystem::copy_file(test::data("folders") / "adapter_model.bin", folder / "adapter_model.bin");
  const AdapterFolder old(model, folder.path()), want(model, test::data(folder_of("llama-qv")));
  for (const auto& p : model.parameters) {
    if (!is_adapter(*p)) continue;
    std::vector<double> got(static_cast<size_t>(p->elems())), values(got);
    old.read(*p, 0, got), want.read(*p, 0, values);
    EXPECT_EQ(got, values) << p->name;
  }
  const data::SafetensorsReader plain(test::data(folder_of("llama-qv")) / kAdapterName);
  std::vector<data::TensorInfo> more = plain.tensors();
  more.push_back({.name = "base_model.model.model.embed_tokens.weight", .dtype = DType::f32, .shape = {97, 32}});
  data::SafetensorsWriter writer(folder / kAdapterName, more);
  const std::vector<std::byte> zeros(97 * 32 * 4);
  for (const data::TensorInfo& tensor : writer.tensors())
    writer.write(tensor, 0, std::span(zeros).first(static_cast<size_t>(tensor.bytes())));
  writer.finish();
  EXPECT_THAT(refusal(), HasSubstr("embed_tokens.weight is a whole embedding or head"));
}

TEST(AdapterFolder, OfAnotherBaseIsNamedByTensor) {
  ModelConfig other = config_of("llama-qv");
  other.width = 16, other.head_dim = 8;
  const nn::Sequential model = build(other, DType::f32);
  try {
    AdapterFolder(model, test::data("lora/llama-qv"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.layers.0.self_attn.q_proj.lora_A.weight: expected "), HasSubstr("[4, 16], got")));
  }
  ModelConfig fewer = config_of("llama-qv");
  fewer.lora->targets = {"q_proj"};
  const nn::Sequential half = build(fewer, DType::f32);
  EXPECT_THROW(AdapterFolder(half, test::data("lora/llama-qv")), Error) << "tensors of no layer";
  ModelConfig more = config_of("llama-qv");
  more.lora->targets.push_back("k_proj");
  const nn::Sequential bigger = build(more, DType::f32);
  EXPECT_THROW(AdapterFolder(bigger, test::data("lora/llama-qv")), Error) << "tensors missing";
}

}  // namespace
}  // namespace spillway::models::lora_test
