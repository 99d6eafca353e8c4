#include "models/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model.h"

namespace spillway::models::presets_test {
namespace {

using ::testing::HasSubstr;

// Returns the number of parameters of a preset. The model is built from shapes only, so its parameters have no memory.
i64 parameters(const char* name) {
  const nn::Sequential model = build(preset(name), DType::f32);
  for (const auto& p : model.parameters) EXPECT_FALSE(p->storage->resident());
  return model.parameter_elems();
}

TEST(Presets, HaveThePublishedParameterCounts) {
  EXPECT_EQ(parameters("gpt2-tiny"), 858'880);
  EXPECT_EQ(parameters("gpt2-124m"), 124'439'808);
  EXPECT_EQ(parameters("gpt2-355m"), 354'823'168);
  EXPECT_EQ(parameters("gpt2-774m"), 774'030'080);
  EXPECT_EQ(parameters("gpt2-1.5b"), 1'557'611'200);
  EXPECT_EQ(parameters("llama3-1b"), 1'235'814'400);
  EXPECT_EQ(parameters("llama3-8b"), 8'030'261'248);
  EXPECT_EQ(parameters("llama3-70b"), 70'553'706'496);
  EXPECT_EQ(parameters("qwen2.5-0.5b"), 494'032'768);
  EXPECT_EQ(parameters("qwen2.5-1.5b"), 1'543'714'304);
  EXPECT_EQ(parameters("qwen2.5-3b"), 3'085'938'688);
  EXPECT_EQ(parameters("qwen2.5-7b"), 7'615'616'512);
  EXPECT_EQ(parameters("qwen2.5-14b"), 14'770'033'664);
  EXPECT_EQ(parameters("qwen2.5-32b"), 32'763'876'352);
  EXPECT_EQ(parameters("qwen2.5-72b"), 72'706'203'648);
  EXPECT_EQ(parameters("qwen3-0.6b"), 596'049'920);
  EXPECT_EQ(parameters("qwen3-1.7b"), 1'720'574'976);
  EXPECT_EQ(parameters("qwen3-4b"), 4'022'468'096);
  EXPECT_EQ(parameters("qwen3-8b"), 8'190'735'360);
  EXPECT_EQ(parameters("qwen3-14b"), 14'768'307'200);
  EXPECT_EQ(parameters("qwen3-32b"), 32'762'123'264);
  EXPECT_EQ(parameters("qwen3-30b-a3b"), 30'532'122'624);
  EXPECT_EQ(parameters("mixtral-8x7b"), 46'702'792'704);
  EXPECT_EQ(parameters("mistral-7b"), 7'248'023'552);
  EXPECT_EQ(parameters("gemma2-2b"), 2'614'341'888);
  EXPECT_EQ(parameters("gemma2-9b"), 9'241'705'984);
  EXPECT_EQ(parameters("gemma2-27b"), 27'227'128'320);
  EXPECT_EQ(parameters("gemma3-1b"), 999'885'952);
  EXPECT_EQ(parameters("phi3-mini"), 3'821'079'552);
  EXPECT_EQ(parameters("olmo2-1b"), 1'484'916'736);
  EXPECT_EQ(parameters("olmo2-7b"), 7'298'617'344);
  EXPECT_EQ(parameters("olmo2-13b"), 13'716'198'400);
  EXPECT_EQ(parameters("gemma4-26b-a4b"), 25'233'141'760 + 30);
  EXPECT_EQ(parameters("gemma4-31b"), 30'697'345'280 + 60) << "a number for each layer is no parameter in PyTorch";
  EXPECT_EQ(parameters("command-r7b"), 8'028'033'024);
  EXPECT_EQ(parameters("command-a"), 111'057'580'032);
  EXPECT_EQ(parameters("glm4-9b"), 9'400'279'040);
  EXPECT_EQ(parameters("glm4-32b"), 32'566'081'536);
  EXPECT_EQ(parameters("granite3.3-2b"), 2'533'539'840);
  EXPECT_EQ(parameters("granite3.3-8b"), 8'170'864'640);
  EXPECT_EQ(parameters("lfm2-1.2b"), 1'170'340'608);
  EXPECT_EQ(parameters("ministral3-3b"), 3'429'006'336);
  EXPECT_EQ(parameters("ministral3-8b"), 8'489'553'920);
  EXPECT_EQ(parameters("ministral3-14b"), 13'506'073'600);
  EXPECT_EQ(parameters("seed-oss-36b"), 36'151'104'512);
  EXPECT_EQ(parameters("olmo3-7b"), 7'298'011'136);
  EXPECT_EQ(parameters("olmo3-32b"), 32'233'522'176);
  EXPECT_EQ(parameters("phi4-mini"), 3'836'021'760);
  EXPECT_EQ(parameters("smollm3-3b"), 3'075'098'624);
}

// The expected counts are those of torchvision; of ResNet-20 with convolutions in two
// shortcuts (He et al.: 0.27 M); of PyTorch's tutorial; and of LeNet-5 with 400 features.
TEST(Presets, OfImagesHaveThePublishedParameterCounts) {
  EXPECT_EQ(parameters("alexnet"), 61'100'840);
  EXPECT_EQ(parameters("vgg11"), 132'863'336);
  EXPECT_EQ(parameters("resnet18"), 11'689'512);
  EXPECT_EQ(parameters("resnet34"), 21'797'672);
  EXPECT_EQ(parameters("resnet50"), 25'557'032);
  EXPECT_EQ(parameters("resnet20"), 272'474);
  EXPECT_EQ(parameters("cifar-net"), 62'006);
  EXPECT_EQ(parameters("lenet"), 61'706);
}

// llama-tiny's number of parameters is counted by hand: two tables of 256 x 128; in each layer two
// norms, q and o of 128 x 128, k and v of 64 x 128, and three matrices of 352 x 128; and the last norm.
TEST(Presets, LlamaTinyIsWhatTheManualSays) {
  EXPECT_EQ(parameters("llama-tiny"), 2 * 256 * 128 + 4 * (2 * 128 + 2 * 128 * 128 + 2 * 64 * 128 + 3 * 352 * 128) + 128);
  EXPECT_FALSE(preset("llama-tiny").tied_head);
  EXPECT_EQ(preset("llama-tiny").kv_heads, 2);
}

TEST(Presets, HavePublishedShapes) {
  const ModelConfig one = preset("llama3-1b"), eight = preset("llama3-8b"), seventy = preset("llama3-70b");
  EXPECT_EQ(one.rope_scaling, (RopeScaling{32, 1, 4, 8192}));
  EXPECT_EQ(eight.rope_scaling, (RopeScaling{8, 1, 4, 8192}));
  EXPECT_EQ(one.head_dim, 64);
  EXPECT_EQ(seventy.head_dim, 128);
  EXPECT_TRUE(one.tied_head);
  EXPECT_FALSE(eight.tied_head);
  for (const auto name : preset_names()) {
    EXPECT_EQ(preset(name).residual_dropout + preset(name).embedding_dropout + preset(name).attention_dropout, 0) << name;
    EXPECT_TRUE(is_preset(name));
  }
}

std::string refusal(std::string_view name) {
  try {
    preset(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Presets, UnknownNamesAreToldTheNearest) {
  EXPECT_FALSE(is_preset("gpt2-125m"));
  EXPECT_THAT(refusal("gpt2-125m"), HasSubstr("did you mean gpt2-124m"));
  EXPECT_THAT(refusal("llama-8b"), HasSubstr("did you mean llama3-8b"));
  EXPECT_THAT(refusal("gpt2tiny"), HasSubstr("did you mean gpt2-tiny"));
  EXPECT_THAT(refusal(""), HasSubstr("expected one of gpt2-tiny, "));
  EXPECT_LT(refusal(std::string(100000, 'x')).size(), 1000u);
}

}  // namespace
}  // namespace spillway::models::presets_test
