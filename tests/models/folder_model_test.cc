// Tests model folders that describe one model in different or contradictory ways, against
// transformers in fp64. tests/peers/model_folders.py wrote the data in tests/data/folders.
#include "models/folder_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/safetensors/folder_checksums.h"
#include "models/model.h"
#include "models/weights.h"
#include "tests/models/support_reference.h"
#include "tests/support/fixtures.h"
#include "tests/support/temporary_folder.h"

namespace spillway::models::folder_model_test {
namespace {

using test::Reference;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Tensors = std::map<std::string, std::pair<Shape, std::vector<float>>>;

constexpr const char* kEmbedding = "model.embed_tokens.weight";

const Reference& reference() {
  static const Reference all("folders", DType::f64);
  return all;
}

Tensors tensors_of(const std::string& model) {
  const data::SafetensorsReader reader(test::data(model) / "model.safetensors");
  Tensors tensors;
  for (const data::TensorInfo& info : reader.tensors()) {
    std::vector<float> values(static_cast<size_t>(info.shape.elems()));
    reader.read(info, 0, std::as_writable_bytes(std::span(values)));
    tensors[info.name] = {info.shape, std::move(values)};
  }
  return tensors;
}

void write_file(const std::filesystem::path& path, const Tensors& tensors) {
  std::vector<data::TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) infos.push_back({.name = name, .dtype = DType::f32, .shape = tensor.first});
  data::SafetensorsWriter writer(path, infos);
  for (const data::TensorInfo& info : writer.tensors()) writer.write(info, 0, std::as_bytes(std::span(tensors.at(info.name).second)));
  writer.finish();
}

// Returns the config.json of a folder of tests/data with some keys changed.
std::string config_with(const std::string& model, const nlohmann::json& changes) {
  nlohmann::json config = nlohmann::json::parse(data::read_checked_text({}, test::data(model) / "config.json"));
  config.update(changes);
  return config.dump();
}

class FolderModelTest : public ::testing::Test {
 protected:
  // Writes a folder with the given config.json and weights, and reads it as a model.
  FolderModel read(const std::string& config, const Tensors& tensors) {
    folder_.write("config.json", config);
    write_file(folder_ / "model.safetensors", tensors);
    return read_folder_model(folder_.path());
  }
  std::vector<double> last_logits(const ModelConfig& config) {
    const nn::Sequential model = build(config, DType::f64);
    const nn::EagerParameters memory(model);
    fill(model, FolderWeights(model, folder_.path()));
    nn::Context context;
    context.mode = nn::Mode::generate;
    const MicroBatch batch = reference().batch("heads/input_ids", "heads/input_ids");
    context.batch = &batch;
    context.logits_position = batch.tokens_BT.size(1) - 1;
    return test::as_doubles(nn::run(model, context).value);
  }
  void expect_logits(const ModelConfig& config, const std::string& name) {
    EXPECT_LE(test::worst_excess(last_logits(config), reference().values(name), 1e-12, 0), 0) << name;
  }

  const test::TemporaryFolder folder_;
};

TEST_F(FolderModelTest, AHeadOfItsOwnIsTakenUntied) {
  const FolderModel llama = read(config_with("llama-tiny", {{"tie_word_embeddings", true}}), tensors_of("llama-tiny"));
  EXPECT_FALSE(llama.config.tied_head);
  EXPECT_THAT(llama.notes, ElementsAre(AllOf(HasSubstr("tie_word_embeddings"), HasSubstr("lm_head.weight"), HasSubstr("untied"))));
  expect_logits(llama.config, "untied/llama/logits");

  Tensors gpt2 = tensors_of("gpt2-tiny");
  const std::vector<double> head = reference().values("untied/gpt2/lm_head");
  gpt2["lm_head.weight"] = {gpt2.at("transformer.wte.weight").first, {head.begin(), head.end()}};
  nlohmann::json config = nlohmann::json::parse(config_with("gpt2-tiny", nlohmann::json::object()));
  config.erase("tie_word_embeddings");  // GPT-2's head is tied even if the config lacks this key
  const FolderModel own = read(config.dump(), gpt2);
  EXPECT_FALSE(own.config.tied_head);
  expect_logits(own.config, "untied/gpt2/logits");
  EXPECT_THAT(to_json(own.config), HasSubstr("\"tie_word_embeddings\": false"));
}

TEST_F(FolderModelTest, AnEqualHeadIsTied) {
  Tensors tensors = tensors_of("llama-tiny");
  tensors["lm_head.weight"] = tensors.at(kEmbedding);
  const std::string tied = config_with("llama-tiny", {{"tie_word_embeddings", true}});
  const FolderModel model = read(tied, tensors);
  EXPECT_TRUE(model.config.tied_head);
  EXPECT_THAT(model.notes, IsEmpty());
  const nn::Sequential built = build(model.config, DType::f32);
  EXPECT_NO_THROW(FolderWeights(built, folder_.path()));
  tensors["lm_head.weight"].second.back() += 1e-3F;  // changes only the last value, so that the head is no longer equal to the embedding
  EXPECT_FALSE(read(tied, tensors).config.tied_head);
  try {
    FolderWeights(built, folder_.path());
    FAIL() << "the head would be dropped without a word";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("lm_head.weight"), HasSubstr("tie_word_embeddings")));
  }
}

TEST_F(FolderModelTest, ATiedHeadWithoutAnEmbeddingIsTheEmbedding) {
  Tensors tensors = tensors_of("llama-tiny");
  tensors.erase(kEmbedding);
  const FolderModel model = read(config_with("llama-tiny", {{"tie_word_embeddings", true}}), tensors);
  EXPECT_TRUE(model.config.tied_head);
  EXPECT_THAT(model.notes, ElementsAre(HasSubstr("has no embed_tokens.weight")));
  expect_logits(model.config, "swapped/llama/logits");
}

TEST_F(FolderModelTest, WrappersAreLeftOutOfNamesAndNamed) {
  Tensors wrapped;
  for (const auto& [name, tensor] : tensors_of("llama-tiny")) {
    std::string inside = name;
    if (const size_t at = inside.find("self_attn"); at != inside.npos)
      inside.insert(at, "_checkpoint_wrapped_module._fsdp_wrapped_module.");
    wrapped["module._orig_mod." + inside] = tensor;
  }
  const FolderModel model = read(config_with("llama-tiny", nlohmann::json::object()), wrapped);
  EXPECT_THAT(model.notes,
              ElementsAre(AllOf(HasSubstr("wrapper"), HasSubstr("module._orig_mod.lm_head.weight is read as lm_head.weight"))));
  expect_logits(model.config, "untied/llama/logits");
  wrapped["module.lm_head.weight"] = wrapped.at("module._orig_mod.lm_head.weight");
  EXPECT_THROW(read(config_with("llama-tiny", nlohmann::json::object()), wrapped), Error) << "one name twice";
}

TEST_F(FolderModelTest, TensorsOfNoModuleAreNamedAndLeftOut) {
  Tensors tensors = tensors_of("llama-tiny");
  tensors["v_head.summary.weight"] = {{1, 32}, std::vector<float>(32)};
  const FolderModel model = read(config_with("llama-tiny", nlohmann::json::object()), tensors);
  EXPECT_THAT(model.notes, ElementsAre(HasSubstr("v_head.summary.weight")));
  expect_logits(model.config, "untied/llama/logits");
}

TEST_F(FolderModelTest, BlocksOfMultiTokenPredictionAreNamedAndLeftOut) {
  Tensors tensors = tensors_of("llama-tiny");
  tensors["model.layers.2.eh_proj.weight"] = {{1, 32}, std::vector<float>(32)};
  tensors["model.layers.2.shared_head.norm.weight"] = {{32}, std::vector<float>(32)};
  const FolderModel model = read(config_with("llama-tiny", nlohmann::json::object()), tensors);
  EXPECT_THAT(model.notes, ElementsAre(AllOf(HasSubstr("model.layers.2.eh_proj"), HasSubstr("model.layers.2.shared_head"))));
  expect_logits(model.config, "untied/llama/logits");
  tensors["model.layers.3.shared_head.norm.weight"] = tensors["model.layers.2.shared_head.norm.weight"];
  const FolderModel other = read(config_with("llama-tiny", nlohmann::json::object()), tensors);
  EXPECT_THROW(expect_logits(other.config, "untied/llama/logits"), Error) << "another layer, without such a projection";
}

// The embedding row of pad_token_id gets no gradient from the inputs, but it gets one through a tied head.
class PaddingRow : public ::testing::TestWithParam<const char*> {};

TEST_P(PaddingRow, HasTheGradientThatItHasInTransformers) {
  const std::string name = GetParam(), of = "padding/" + name + "/";
  const ModelConfig config = parse_config(config_with(name, {{"pad_token_id", 5}}), name);
  test::Eager eager(name, config, DType::f64);
  const MicroBatch batch = reference().batch(of + "input_ids", of + "input_ids");
  const double factor = 1 / static_cast<double>(batch.counted_targets);
  EXPECT_NEAR(eager.backward(batch, factor) * factor, reference().value(of + "loss"), 1e-11);
  const std::vector<double> all = eager.gradient(name == "gpt2-tiny" ? "transformer.wte.weight" : kEmbedding);
  for (const auto& [row, key] : {std::pair(5, "pad_row"), std::pair(7, "other_row")}) {
    const std::vector<double> got(all.begin() + row * config.width, all.begin() + (row + 1) * config.width);
    EXPECT_LE(test::worst_excess(got, reference().values(of + key), 1e-12, 0), 0) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PaddingRow,
                         ::testing::Values("llama-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", "qwen3-moe-tiny", "mixtral-tiny",
                                           "gemma2-tiny", "gemma3-text-tiny", "phi3-tiny", "olmo2-tiny", "gpt2-tiny"),
                         [](const auto& entry) {
                           std::string text = entry.param;
                           std::erase(text, '-');
                           return text;
                         });

TEST(PaddingRowOfConfig, IsTransformers) {
  const auto row = [](const std::string& model, const nlohmann::json& changes) {
    const ModelConfig config = parse_config(config_with(model, changes), model);
    EXPECT_TRUE(parse_config(to_json(config), model) == config) << "written and read again";
    return config.padding_row;
  };
  EXPECT_EQ(row("llama-tiny", {{"pad_token_id", nullptr}}), std::nullopt);
  EXPECT_EQ(row("llama-tiny", {{"pad_token_id", -1}}), 96) << "nn.Embedding counts from the end";
  EXPECT_EQ(row("llama-tiny", {{"pad_token_id", 97}}), std::nullopt);
  EXPECT_EQ(row("gpt2-tiny", {{"pad_token_id", 5}}), std::nullopt);
  for (const auto& [model, want] : {std::pair("gemma2-tiny", 0), {"gemma3-text-tiny", 0}, {"olmo2-tiny", 1}}) {
    nlohmann::json config = nlohmann::json::parse(config_with(model, nlohmann::json::object()));
    config.erase("pad_token_id");
    EXPECT_EQ(parse_config(config.dump(), model).padding_row, want) << model << ", where the key is not there";
  }
}

// The router loss does not count padding. The references are transformers' loss and gradients.
class PaddedRouter : public ::testing::TestWithParam<const char*> {};

TEST_P(PaddedRouter, LossAndGradientsAreTransformers) {
  const std::string name = GetParam(), of = "router/" + name + "/";
  ModelConfig config = parse_config(config_with(name, {{"output_router_logits", true}, {"router_aux_loss_coef", 0.5}}), name);
  test::Eager eager(name, config, DType::f64);
  MicroBatch batch = reference().batch(of + "input_ids", of + "labels");
  const Tensor mask = reference().ids(of + "mask");
  for (i64 i = 0; i < mask.elems(); ++i) {
    if (mask.data<i32>()[i] == 0) batch.targets_BT.data<i32>()[i] = kPaddingTarget, ++batch.padding;
  }
  ASSERT_EQ(batch.padding, 10);
  const double factor = 1 / static_cast<double>(batch.counted_targets);
  EXPECT_NEAR(eager.backward(batch, factor) * factor, reference().value(of + "loss"), 1e-11);
  for (i64 layer = 0; layer < config.layers; ++layer) {
    const std::string gate =
        fmt::format("model.layers.{}.{}.gate.weight", layer, config.family == Family::mixtral ? "block_sparse_moe" : "mlp");
    EXPECT_LE(test::worst_excess(eager.gradient(gate), reference().values(of + "grad/" + std::to_string(layer)), 1e-12, 0), 0) << gate;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PaddedRouter, ::testing::Values("mixtral-tiny", "qwen3-moe-tiny"), [](const auto& entry) {
  std::string text = entry.param;
  std::erase(text, '-');
  return text;
});

// A micro-batch that consists of padding alone has a router loss of 0, not 0 / 0.
TEST(PaddedRouterLoss, OfPaddingAloneIsNothing) {
  ModelConfig config = parse_config(config_with("mixtral-tiny", {{"output_router_logits", true}}), "mixtral-tiny");
  test::Eager eager("mixtral-tiny", config, DType::f32);
  MicroBatch batch = reference().batch("router/mixtral-tiny/input_ids", "router/mixtral-tiny/labels");
  std::ranges::fill(batch.targets_BT.span<i32>(), kPaddingTarget);
  batch.counted_targets = 0, batch.padding = batch.targets_BT.elems();
  EXPECT_EQ(eager.backward(batch, 1), 0);
  for (const double g : eager.gradient("model.layers.0.block_sparse_moe.gate.weight")) EXPECT_EQ(g, 0);
}

}  // namespace
}  // namespace spillway::models::folder_model_test
