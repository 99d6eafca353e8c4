// Tests which models the weight files of other programs contain (tests/peers/imports.py made the files). Takes 0.1 s.
#include "models/import.h"

#include <gmock/gmock.h>

#include <array>
#include <map>

#include "models/export/plain_model.h"
#include "tests/data/support_files.h"
#include "tests/data/weights/support_pickles.h"
#include "tests/support/fixtures.h"

namespace spillway::models::import_test {
namespace {

using namespace spillway::test;
using testing::AllOf;
using testing::HasSubstr;

const std::filesystem::path kFolder = "imports";

TEST(Import, LlmCsHeaderIsAConfig) {
  for (const char* name : {"gpt2.bin", "gpt2_bf16.bin"}) {
    const auto file = test::data(kFolder / name);
    const ImportedModel imported = imported_model(file, {});
    EXPECT_EQ(imported.kind, "llm.c's GPT-2");
    const ModelConfig& c = imported.config;
    EXPECT_EQ(c.family, Family::gpt2);
    EXPECT_EQ(std::tuple(c.layers, c.width, c.heads, c.kv_heads, c.head_dim, c.mlp_width), std::tuple(2, 12, 3, 3, 4, 48));
    EXPECT_EQ(std::tuple(c.positions, c.vocabulary), std::tuple(16, 61));
    EXPECT_TRUE(c.tied_head && c.end_tokens.empty() && !c.begin_token);
    EXPECT_EQ(PlainModel(c, file).model().parameters.size(), 28u);
  }
}

TEST(Import, TorchvisionsLayersSayTheClasses) {
  const ImportedModel imported = imported_model(test::data(kFolder / "resnet18.pth"), "resnet18");
  EXPECT_EQ(imported.kind, "torchvision's resnet18");
  EXPECT_EQ(imported.config.vocabulary, 7);
  EXPECT_EQ(imported.config.image_CHW, (Shape{3, 224, 224}));
}

// Each tensor of the file holds one number, which is the tensor's place in torchvision's state_dict, counted from 1.
TEST(Import, ATorchvisionModelHasItsNames) {
  const auto file = test::data(kFolder / "resnet18.pth");
  const PlainModel model(imported_model(file, "resnet18").config, file);
  std::map<std::string, double> numbers;
  for (const auto& p : model.model().parameters) {
    std::array<double, 1> last{};
    model.weights().read(*p, p->elems() - 1, last);
    numbers[p->name] = last[0];
  }
  EXPECT_EQ(numbers.size(), 102u);
  EXPECT_EQ(numbers["conv1.weight"], 1);
  EXPECT_EQ(numbers["bn1.running_var"], 5);  // entry 6 of the state_dict is num_batches_tracked
  EXPECT_EQ(numbers["layer1.0.conv1.weight"], 7);
  EXPECT_EQ(numbers["fc.bias"], 122);
}

TEST(Import, WhatIsNoneOfThemSaysSo) {
  const TemporaryFolder folder;
  const auto resnet = test::data(kFolder / "resnet18.pth"), llm_c = test::data(kFolder / "gpt2.bin");
  const auto usage = [](const std::filesystem::path& file, const std::optional<std::string>& as) {
    return error_of(ErrorCode::usage, [&] { imported_model(file, as); });
  };
  const auto refused = [](const std::filesystem::path& file, const std::optional<std::string>& as) {
    return error_of(ErrorCode::data, [&] { imported_model(file, as); });
  };
  EXPECT_THAT(usage(folder / "none.bin", {}), HasSubstr("none.bin"));
  EXPECT_THAT(usage(folder.path(), {}), HasSubstr("expected a file"));
  EXPECT_THAT(usage(resnet, {}), AllOf(HasSubstr("--as NAME"), HasSubstr("resnet18, resnet34, resnet50, alexnet, vgg11")));
  EXPECT_THAT(usage(resnet, "resnet"), AllOf(HasSubstr("[--as]"), HasSubstr("(resnet18, ")));
  EXPECT_THAT(usage(llm_c, "resnet18"), HasSubstr("[--as]"));
  EXPECT_THAT(refused(resnet, "vgg11"), AllOf(HasSubstr("features.0.weight of 4 dimensions"), HasSubstr("vgg11"), HasSubstr("got none")));
  EXPECT_THAT(refused(test::data("torch/old.bin"), "resnet18"), HasSubstr("torch.save(torch.load(FILE, weights_only=True), NEW)"));
  EXPECT_THAT(refused(put(folder / "x.bin", "GGUF and more"), {}), HasSubstr("got neither"));
  EXPECT_THAT(refused(put(folder / "x.bin", ""), {}), HasSubstr("got neither"));
  const std::string whole = bytes_of(llm_c);
  EXPECT_THAT(refused(put(folder / "x.bin", whole.substr(0, 20000)), {}), HasSubstr("expected 23104 bytes"));
  // A tensor with strides of 0 claims any shape with a single stored element.
  namespace pickles = test::pickles;
  const auto with_classes = [&](i64 classes) {
    const std::string first = pickles::tensor({.sizes = {64, 3, 7, 7}, .strides = {0, 0, 0, 0}});
    const std::string last = pickles::tensor({.sizes = {classes}, .strides = {0}});
    return put(folder / "x.pth",
               pickles::torch_file(pickles::dict({pickles::text("conv1.weight"), first, pickles::text("fc.bias"), last})));
  };
  EXPECT_EQ(imported_model(with_classes(7), "resnet18").config.vocabulary, 7);
  EXPECT_THAT(refused(with_classes(i64{1} << 50), "resnet18"), AllOf(HasSubstr("16777216"), HasSubstr("fc.bias of 1125899906842624")));
  // The config is that of a ResNet-34, but the file has the weights of a ResNet-18.
  const auto wrong = imported_model(resnet, "resnet34");
  EXPECT_THAT(error_of(ErrorCode::data, [&] { PlainModel model(wrong.config, resnet); }), HasSubstr("are missing: layer1.2.conv1.weight"));
}

}  // namespace
}  // namespace spillway::models::import_test
