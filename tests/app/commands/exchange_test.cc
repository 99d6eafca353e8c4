// Tests the commands that exchange models with other programs: export --format gguf, and import. Takes 0.5 s.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/app/support_app.h"
#include "tests/support/fixtures.h"

namespace spillway::app::exchange_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Exchange : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  static std::string data(const fs::path& name) { return test::data(name).string(); }

  void refused(const std::vector<std::string>& args, int status, const std::string& why) const {
    const Outcome outcome = run_app(args);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(why));
    EXPECT_FALSE(fs::exists(at("out"))) << args[1];
  }
  // Copies a model and a tokenizer into one folder and returns its path.
  std::string with_tokenizer(const std::string& model, const std::string& tokenizer) const {
    fs::copy(test::data(model), at("model"));
    fs::copy(test::data(fs::path("tokenizer") / tokenizer / "tokenizer.json"), at("model"));
    return at("model");
  }

  TemporaryFolder folder_;
};

std::string file_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(Exchange, AGgufFileIsOneFile) {
  const Outcome done = run_app({"export", data("mistral-window-tiny"), "--out", at("out"), "--format", "gguf"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out,
              AllOf(HasSubstr("exported 21 tensors in 1 file to"), HasSubstr("in llama.cpp: llama-cli -m " + at("out/model.gguf"))));
  EXPECT_THAT(done.err, AllOf(HasSubstr("longer than 6 tokens"), HasSubstr("without a tokenizer")));
  EXPECT_EQ(std::distance(fs::directory_iterator(at("out")), fs::directory_iterator()), 1);
  const std::string bytes = file_text(at("out/model.gguf"));
  EXPECT_TRUE(bytes.starts_with("GGUF"));
  EXPECT_THAT(bytes, AllOf(HasSubstr("mistral-window-tiny"), HasSubstr("blk.1.ffn_down.weight")));
  const Outcome json = run_app({"export", data("llama-tiny"), "--out", at("json"), "--format", "gguf", "--dtype", "q8_0", "--json"});
  EXPECT_THAT(json.out, HasSubstr("\"tensors\":21,\"files\":1"));
  // Exporting a model to GGUF twice gives equal bytes.
  ASSERT_EQ(run_app({"export", data("mistral-window-tiny"), "--out", at("again"), "--format", "gguf"}).status, 0);
  EXPECT_EQ(file_text(at("again/model.gguf")), bytes);
}

TEST_F(Exchange, AGgufFileHasTheTokenizerOrSaysThatItCannot) {
  refused({"export", with_tokenizer("llama-tiny", "llama2-style"), "--out", at("out"), "--format", "gguf"}, 4,
          "expected at most 97 tokens (vocab_size in config.json), got 600");
}

// A model that is trained on raw bytes has no tokenizer file. Its GGUF export lists the bytes as tokens, so that llama.cpp can run it.
TEST_F(Exchange, BytesAreATokenizer) {
  const std::string text = folder_.write("a.txt", std::string(2000, 'x') + std::string(1000, 'y'));
  const Outcome trained = run_app({"train", "--model", "gpt2-tiny", "--data", text, "--steps", "1", "--sequence-length", "16", "--out",
                                   at("run"), "--threads", "1", "--device", "cpu", "--tensorboard", "off"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const Outcome done = run_app({"export", at("run"), "--out", at("out"), "--format", "gguf"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, testing::Not(HasSubstr("gguf:")));
  EXPECT_THAT(file_text(at("out/model.gguf")), AllOf(HasSubstr("tokenizer.ggml.merges"), HasSubstr("\u0120")));
}

TEST_F(Exchange, WhatGgufHasNotIsRefusedAndNothingStays) {
  refused({"export", data("gpt2-odd"), "--out", at("out"), "--format", "gguf"}, 2, "expected GPT-2 with gelu_new, got another activation");
  refused({"export", data("llama-tiny"), "--out", at("out"), "--dtype", "q8_0"}, 2,
          "expected --dtype fp32, fp64, bf16 or fp16, got `q8_0`");
  refused({"export", data("llama-tiny"), "--out", at("out"), "--format", "ggml"}, 2, "[--format] expected one of: hf onnx gguf");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 0);
  fs::create_directory(at("there"));
  const Outcome outcome = run_app({"export", data("llama-tiny"), "--out", at("there"), "--format", "gguf"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("which exists: give another name"));
}

TEST_F(Exchange, AnImportedModelWrites) {
  const Outcome done = run_app({"import", data("imports/gpt2_bf16.bin"), "--out", at("in")});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("imported llm.c's GPT-2, 28 tensors in 1 file, to"), HasSubstr("AutoModelForCausalLM")));
  EXPECT_THAT(done.err, HasSubstr("no tokenizer"));
  EXPECT_THAT(run_app({"inspect", at("in/model.safetensors")}).out,
              AllOf(HasSubstr("transformer.h.1.mlp.c_fc.weight"), HasSubstr("[12,48]")));
  const Outcome written = run_app({"export", at("in"), "--out", at("out"), "--format", "gguf", "--json"});
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_THAT(run_app({"import", data("imports/gpt2.bin"), "--out", at("json"), "--json"}).out,
              AllOf(HasSubstr("\"model\":\"llm.c's GPT-2\""), HasSubstr("\"tensors\":28")));
}

TEST_F(Exchange, WhatCannotBeImportedLeavesNothing) {
  refused({"import", data("imports/resnet18.pth"), "--out", at("out")}, 2, "expected --as NAME");
  refused({"import", data("imports/resnet18.pth"), "--out", at("out"), "--as", "resnet50"}, 4, "are missing: layer1.0.conv3.weight");
  refused({"import", data("imports/model.safetensors"), "--out", at("out")}, 4, "got neither");
  refused({"import", at("none"), "--out", at("out")}, 2, "expected a file, got");
  refused({"import", "--out", at("out")}, 2, "[FILE]");
  refused({"import", data("imports/gpt2.bin")}, 2, "[--out]");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 0);
  const Outcome outcome = run_app({"import", data("imports/gpt2.bin"), "--out", folder_.path().string()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("which exists: give another name"));
}

}  // namespace
}  // namespace spillway::app::exchange_test
