// Models of several parts: their language model is read and trained, and an export has the other parts unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "data/weights/weight_folder.h"
#include "models/export/folder.h"
#include "models/folder_model.h"
#include "models/model.h"
#include "tests/support/fixtures.h"
#include "tests/support/temporary_folder.h"

namespace spillway::models::whole_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kWholes[] = {"families/whole-gemma3", "families/whole-mistral3"};

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Whole, SaysThatTheLanguageModelAloneIsTrained) {
  const FolderModel model = read_folder_model(test::data("families/whole-gemma3"));
  EXPECT_EQ(model.whole, "gemma3");
  EXPECT_EQ(model.config.family, Family::gemma3);
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_THAT(model.notes.front(), HasSubstr("its language model alone is read and trained"));
  EXPECT_EQ(read_folder_model(test::data("gemma3-text-tiny")).whole, "");
}

TEST(Whole, AnExportHasTheSameConfigurationNamesAndBytes) {
  for (const char* name : kWholes) {
    for (const i64 most : {i64{1} << 40, i64{4000}}) {  // in one file and in shards
      const std::filesystem::path from = test::data(name);
      const test::TemporaryFolder folder;
      const ExportResult written = export_folder(PlainModel(read_config(from), from), folder.path(), {}, most, from);
      EXPECT_EQ(text_of(folder.path() / "config.json"), text_of(from / "config.json"));
      const data::WeightFolder before(from), after(folder.path());
      ASSERT_EQ(after.names(), before.names());
      EXPECT_EQ(written.tensors, std::ssize(before.names()));
      EXPECT_EQ(written.files > 1, most == 4000);
      for (const std::string& tensor : before.names()) {
        EXPECT_EQ(after.find(tensor)->dtype, before.find(tensor)->dtype) << tensor;
        std::vector<double> a(static_cast<size_t>(before.find(tensor)->shape.elems())), b = a;
        before.read(tensor, 0, a), after.read(tensor, 0, b);
        EXPECT_EQ(a, b) << tensor;
      }
    }
  }
}

TEST(Whole, AnExportInAnotherTypeLeavesTheOtherPartsAsTheyAre) {
  const std::filesystem::path from = test::data("families/whole-gemma3");
  const test::TemporaryFolder folder;
  export_folder(PlainModel(read_config(from), from), folder.path(), "bf16", i64{1} << 40, from);
  const data::WeightFolder after(folder.path());
  EXPECT_EQ(after.find("language_model.model.norm.weight")->dtype, DType::bf16);
  EXPECT_EQ(after.find("multi_modal_projector.mm_input_projection_weight")->dtype, DType::f64);
}

// The keys that Gemma 3 4B's published config.json has; all others have the defaults of transformers' Gemma3TextConfig.
TEST(Whole, ReadsTheSparseConfigurationOfGemma3) {
  const ModelConfig c = parse_config(R"({"model_type": "gemma3", "eos_token_id": [1, 106], "vision_config": {"hidden_size": 1152},
      "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
                      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}})",
                                     "f");
  EXPECT_EQ(c.heads, 8);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.vocabulary, 262208);
  EXPECT_EQ(c.positions, 131072);
  EXPECT_TRUE(c.tied_head);
  EXPECT_EQ(c.rope_scaling->factor, 8);
  EXPECT_EQ(c.local_rope_theta, 10000);
  EXPECT_EQ(build(c, DType::bf16).parameter_elems(), 3'880'263'168);
}

}  // namespace
}  // namespace spillway::models::whole_test
