#include "models/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/export/save.h"
#include "models/model.h"
#include "models/presets.h"
#include "nn/eager.h"
#include "tests/support/fixtures.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace spillway::models::weights_test {
namespace {

using data::TensorInfo;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Entry {
  TensorInfo info;
  std::vector<std::byte> bytes;
};
using Entries = std::vector<Entry>;

// Returns the tensors of a reference folder, so that a test can change them and write them elsewhere.
Entries entries_of(const std::string& model) {
  const data::SafetensorsReader reader(test::data(model) / "model.safetensors");
  Entries entries;
  for (const TensorInfo& info : reader.tensors()) {
    entries.push_back({info, std::vector<std::byte>(static_cast<size_t>(info.bytes()))});
    reader.read(info, 0, entries.back().bytes);
  }
  return entries;
}

class Weights : public ::testing::Test {
 protected:
  const std::filesystem::path& write(const Entries& entries) {
    std::vector<TensorInfo> infos;
    for (const Entry& entry : entries) infos.push_back(entry.info);
    data::SafetensorsWriter writer(folder_ / "model.safetensors", infos);
    for (size_t i = 0; i < entries.size(); ++i) writer.write(writer.tensors()[i], 0, entries[i].bytes);
    writer.finish();
    return folder_.path();
  }

  std::string refusal(const Entries& entries, const std::string& model) {
    try {
      const nn::Sequential built = build(read_config(test::data(model)), DType::f32);
      FolderWeights weights(built, write(entries));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data);
      return error.what();
    }
    return "accepted";
  }

 private:
  const test::TemporaryFolder folder_;
};

Entry zeros_of(const std::string& name, const Shape& shape) {
  Entry entry;
  entry.info.name = name;
  entry.info.shape = shape;
  entry.bytes.resize(static_cast<size_t>(shape.elems() * 4));
  return entry;
}

std::vector<double> values(const WeightSource& source, const nn::Parameter& parameter) {
  std::vector<double> all(static_cast<size_t>(parameter.elems()));
  source.read(parameter, 0, all);
  return all;
}

// Expects `got` to give the same values as the unchanged folder, for every parameter.
void expect_same(const WeightSource& got, const nn::Sequential& model, const std::string& folder) {
  const FolderWeights want(model, test::data(folder));
  for (const auto& p : model.parameters) EXPECT_EQ(values(got, *p), values(want, *p)) << p->name;
}

TEST_F(Weights, ReadsAnyRange) {
  const nn::Sequential model = build(read_config(test::data("llama-tiny")), DType::f32);
  const FolderWeights weights(model, test::data("llama-tiny"));
  const nn::Parameter& p = *model.parameters[2];
  const auto all = values(weights, p);
  std::vector<double> part(17);
  weights.read(p, 5, part);
  EXPECT_EQ(part, std::vector<double>(all.begin() + 5, all.begin() + 22));
  EXPECT_THROW(weights.read(p, p.elems() - 16, part), Error);
  EXPECT_THROW(weights.read(p, -1, part), Error);
}

TEST_F(Weights, TakesTheBaseModelsNames) {
  for (const auto& [folder, prefix] : {std::pair("gpt2-tiny", "transformer."), std::pair("llama-tiny", "model.")}) {
    Entries entries = entries_of(folder);
    for (Entry& entry : entries) {
      if (entry.info.name.starts_with(prefix)) entry.info.name = entry.info.name.substr(std::string(prefix).size());
    }
    const nn::Sequential model = build(read_config(test::data(folder)), DType::f32);
    expect_same(FolderWeights(model, write(entries)), model, folder);
  }
}

TEST_F(Weights, LeavesKnownBuffersAndARedundantHeadAlone) {
  Entries entries = entries_of("gpt2-tiny");
  entries.push_back(zeros_of("transformer.h.0.attn.bias", {1, 1, 64, 64}));
  entries.push_back(zeros_of("transformer.h.1.attn.masked_bias", {}));
  entries.push_back(*std::ranges::find(entries, "transformer.wte.weight", [](const Entry& e) { return e.info.name; }));
  entries.back().info.name = "lm_head.weight";
  const nn::Sequential gpt2 = build(read_config(test::data("gpt2-tiny")), DType::f32);
  expect_same(FolderWeights(gpt2, write(entries)), gpt2, "gpt2-tiny");

  entries = entries_of("llama-tiny");
  entries.push_back(zeros_of("model.layers.0.self_attn.rotary_emb.inv_freq", {4}));
  const nn::Sequential llama = build(read_config(test::data("llama-tiny")), DType::f32);
  expect_same(FolderWeights(llama, write(entries)), llama, "llama-tiny");
}

TEST_F(Weights, NamesWhatIsMissing) {
  Entries entries = entries_of("llama-tiny");
  std::erase_if(entries, [](const Entry& e) { return e.info.name == "lm_head.weight"; });
  EXPECT_THAT(refusal(entries, "llama-tiny"), AllOf(HasSubstr("missing: lm_head.weight;"), HasSubstr("config.json")));
  std::erase_if(entries, [](const Entry& e) { return e.info.name.starts_with("model.layers.1."); });
  EXPECT_THAT(refusal(entries, "llama-tiny"), AllOf(HasSubstr("model.layers.1.input_layernorm.weight"), HasSubstr("and 5 more")))
      << "five are named";
}

TEST_F(Weights, NamesWhatHasAnotherShapeOrType) {
  Entries entries = entries_of("gpt2-tiny");
  for (Entry& entry : entries) {
    // The shape is the one that the matrix would have in [out, in] order.
    if (entry.info.name == "transformer.h.0.attn.c_attn.weight") entry.info.shape = {96, 32};
    if (entry.info.name == "transformer.wpe.weight") entry.info.dtype = DType::int32;
  }
  EXPECT_THAT(refusal(entries, "gpt2-tiny"), AllOf(HasSubstr("transformer.h.0.attn.c_attn.weight (expected shape [32, 96], got [96, 32])"),
                                                   HasSubstr("transformer.wpe.weight (expected floating-point numbers, got i32)")));
}

TEST_F(Weights, NamesWhatIsLeftOver) {
  Entries entries = entries_of("llama-tiny");
  entries.push_back(zeros_of("model.score.weight", {2, 32}));
  EXPECT_THAT(refusal(entries, "llama-tiny"), HasSubstr(": model.score.weight;"));
  entries = entries_of("gpt2-tiny");
  entries.push_back(zeros_of("transformer.h.2.ln_1.weight", {32}));
  EXPECT_THAT(refusal(entries, "gpt2-tiny"), AllOf(HasSubstr("transformer.h.2.ln_1.weight"), Not(HasSubstr("missing"))));
}

TEST_F(Weights, OneTensorDoesNotServeTwoNames) {
  Entries entries = entries_of("gpt2-tiny");
  entries.push_back(zeros_of("wte.weight", {97, 32}));  // the tensor is added as a second copy of transformer.wte.weight
  EXPECT_THAT(refusal(entries, "gpt2-tiny"), HasSubstr(": wte.weight;"));
}

TEST_F(Weights, FromScratchAreTheInitialValuesRoundedOnce) {
  const nn::Sequential model = build(preset("gpt2-tiny"), DType::f32);
  const nn::EagerParameters memory(model);
  const ScratchWeights source(42);
  fill(model, source);
  for (const auto& p : model.parameters) {
    std::vector<double> want(static_cast<size_t>(p->elems()));
    nn::initial_values(*p, 42, 0, want);
    const auto got = p->value().span<float>();
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], static_cast<float>(want[i])) << p->name << " " << i;
  }
}

TEST(SavedWeights, ComeBackToTheBit) {
  const test::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const nn::Sequential model = build(preset("gpt2-tiny"), dtype), again = build(preset("gpt2-tiny"), dtype);
    const nn::EagerParameters memory(model), other(again);
    fill(model, ScratchWeights(42));
    save(model, folder / "saved");
    fill(again, FolderWeights(again, folder / "saved"));
    for (size_t i = 0; i < model.parameters.size(); ++i)
      EXPECT_TRUE(test::same_bits(again.parameters[i]->value(), model.parameters[i]->value())) << model.parameters[i]->name;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "saved" / "model.safetensors.part"));
}

// transformers 5 stacks the experts of a layer in memory, and saves them so unless it goes back to the published form.
TEST_F(Weights, ExpertsMayBeStackedWhateverTheirFamilyPublishes) {
  for (const char* name : {"families/qwen3-next", "families/qwen3_5-moe", "families/glm4-moe"}) {
    const nn::Sequential model = build(read_config(test::data(name)), DType::f64);
    Entries stacked;
    std::map<std::string, size_t> stacks;
    for (Entry& entry : entries_of(name)) {
      const size_t expert = entry.info.name.find(".experts.");
      if (expert == std::string::npos) {
        stacked.push_back(std::move(entry));
        continue;
      }
      // The experts of a layer are in order of their names: down, gate and up of each.
      const bool down = entry.info.name.ends_with("down_proj.weight");
      const std::string stack = entry.info.name.substr(0, expert) + (down ? ".experts.down_proj" : ".experts.gate_up_proj");
      const auto [at, is_new] = stacks.emplace(stack, stacked.size());
      if (is_new) stacked.push_back({TensorInfo{.name = stack, .dtype = DType::f64}, {}});
      std::vector<std::byte>& bytes = stacked[at->second].bytes;
      bytes.insert(bytes.end(), entry.bytes.begin(), entry.bytes.end());
      Shape& shape = stacked[at->second].info.shape;
      const i64 rows = (down ? 1 : 2) * entry.info.shape[0];
      shape = {is_new ? 0 : shape[0], rows, entry.info.shape[1]};
      if (!entry.info.name.ends_with("gate_proj.weight")) shape.set(0, shape[0] + 1);
    }
    const FolderWeights single(model, test::data(name)), together(model, write(stacked));
    for (const auto& p : model.parameters) EXPECT_EQ(values(together, *p), values(single, *p)) << p->name;
  }
}

// The folder that save() writes has the tensors of the folder that transformers wrote, and reads back to the same bits.
TEST(SavedWeights, HaveTheLayoutOfTheFamilysFolders) {
  int joined = 0;
  for (const std::string& name : test::family_folders()) {
    const ModelConfig config = read_config(test::data(name));
    const nn::Sequential model = build(config, DType::f64), again = build(config, DType::f64);
    const nn::EagerParameters memory(model), other(again);
    const FolderWeights weights(model, test::data(name));
    if (!weights.others().empty() || name.ends_with("mxfp4") || name.starts_with("families/whole")) continue;
    fill(model, weights);
    const test::TemporaryFolder folder;
    save(model, folder / "saved");
    fill(again, FolderWeights(again, folder / "saved"));
    for (size_t i = 0; i < model.parameters.size(); ++i)
      EXPECT_TRUE(test::same_bits(again.parameters[i]->value(), model.parameters[i]->value())) << name << model.parameters[i]->name;
    if (std::ranges::none_of(model.parameters, [](const auto& p) { return p->is_part(); })) continue;
    ++joined;
    const auto tensors = [](const std::filesystem::path& path) {
      std::map<std::string, std::string> all;
      const data::SafetensorsReader reader(path / "model.safetensors");
      for (const TensorInfo& info : reader.tensors()) all[info.name] = to_string(info.shape);
      return all;
    };
    EXPECT_EQ(tensors(folder / "saved"), tensors(test::data(name))) << name;
  }
  EXPECT_GE(joined, 3);  // gpt-oss, Gemma 4 with experts, and with embeddings of each layer
}

}  // namespace
}  // namespace spillway::models::weights_test
