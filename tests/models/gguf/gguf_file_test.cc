// Compares GGUF files byte for byte with files that ggml's own Python package writes
// (tests/peers/gguf_files.py made tests/data/gguf): a model with interleaved heads and Q8_0 blocks,
// the metadata of each kind of tokenizer, and blocks of numbers near every edge case. Takes 0.1 s.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "models/gguf/export_gguf.h"
#include "models/gguf/gguf_metadata.h"
#include "models/gguf/gguf_stream.h"
#include "models/gguf/q8_0.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"
#include "tests/support/temporary_folder.h"

namespace spillway::models::gguf_file_test {
namespace {

using namespace spillway::test;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

// Returns the place where the two strings first differ, or "" if they are equal.
std::string difference(const std::string& got, const std::string& want) {
  const auto [a, b] = std::mismatch(got.begin(), got.end(), want.begin(), want.end());
  if (a == got.end() && b == want.end()) return "";
  return "at byte " + std::to_string(a - got.begin()) + " of " + std::to_string(got.size()) + " and " + std::to_string(want.size());
}

TEST(Gguf, AModelIsTheBytesThatGgmlWrites) {
  const TemporaryFolder folder;
  const fs::path llama = test::data("llama-tiny");
  const PlainModel model(read_config(llama), llama);
  const GgufExport done = export_gguf(model, "a name", {}, folder.path() / "x.gguf", "q8_0");
  EXPECT_EQ(done.tensors, 21);
  EXPECT_THAT(done.notes, ElementsAre(AllOf(HasSubstr("2 of 21 tensors"), HasSubstr("fp16"), HasSubstr("blk.0.ffn_down.weight")),
                                      HasSubstr("without a tokenizer")));
  EXPECT_EQ(difference(bytes_of(folder.path() / "x.gguf"), bytes_of(test::data("gguf/llama-tiny.gguf"))), "");
}

TEST(Gguf, ATokenizerIsTheMetadataThatGgmlWrites) {
  struct Case {
    const char* style;
    i64 vocabulary;
    std::optional<i64> begin;
    i64 end;
  };
  for (const Case& c :
       {Case{"gpt2-style", 520, {}, 0}, {"llama3-style", 648, 640, 641}, {"llama2-style", 600, 1, 2}, {"gemma-style", 603, 1, 2}}) {
    const TemporaryFolder folder;
    ModelConfig config;
    config.vocabulary = c.vocabulary;
    config.begin_token = c.begin;
    config.end_tokens = {c.end};
    GgufMetadata metadata;
    metadata.add("general.architecture", "llama");
    std::vector<std::string> notes;
    add_gguf_tokenizer(config, {test::data(fs::path("tokenizer") / c.style)}, metadata, notes);
    EXPECT_THAT(notes, testing::IsEmpty()) << c.style;
    const std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7};
    GgufWriter writer(folder.path() / "x.gguf", metadata, {{"x.weight", GgufType::f32, {8}}});
    writer.write(0, 0, std::as_bytes(std::span(values)));
    writer.finish();
    const std::string want = bytes_of(test::data(fs::path("gguf") / (std::string(c.style) + ".gguf")));
    EXPECT_EQ(difference(bytes_of(folder.path() / "x.gguf"), want), "") << c.style;
  }
}

TEST(Gguf, ATokenizerOfAnotherKindIsLeftOutAndSaid) {
  ModelConfig config;
  config.vocabulary = 100'000;
  for (const char* style : {"t5-style", "bert-style", "xlmr-style"}) {
    GgufMetadata metadata;
    std::vector<std::string> notes;
    add_gguf_tokenizer(config, {test::data(fs::path("tokenizer") / style)}, metadata, notes);
    EXPECT_EQ(metadata.count(), 1) << style;
    EXPECT_THAT(notes, ElementsAre(HasSubstr("without a tokenizer"))) << style;
  }
  GgufMetadata unnamed;
  std::vector<std::string> notes_of_it;
  config.vocabulary = 512;
  add_gguf_tokenizer(config, {test::data("tokenizer/gpt2-style")}, unnamed, notes_of_it);
  EXPECT_THAT(notes_of_it, ElementsAre(HasSubstr("end-of-text")));
  config.vocabulary = 511;
  GgufMetadata metadata;
  std::vector<std::string> notes;
  EXPECT_THAT(error_of(ErrorCode::data, [&] { add_gguf_tokenizer(config, {test::data("tokenizer/gpt2-style")}, metadata, notes); }),
              HasSubstr("expected at most 511 tokens (vocab_size in config.json), got 512"));
}

TEST(Gguf, RulesThatCutWordsHaveLlamaCppsNames) {
  using nlohmann::json;
  const std::string head = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|",
                    rest = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const auto split = [](const std::string& pattern) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  };
  struct Case {
    json step;
    bool ignore_merges;
    const char* name;
  };
  const std::vector<Case> cases{{nullptr, false, "gpt-2"},
                                {{{"type", "Digits"}, {"individual_digits", true}}, false, "smollm"},
                                {split(head + "\\p{N}{1,3}" + rest), true, "llama-bpe"},
                                {split(head + "\\p{N}{1,3}" + rest), false, "dbrx"},
                                {split(head + "\\p{N}" + rest), false, "qwen2"},
                                {split("\\p{L}+"), false, "default"},
                                {{{"type", "Punctuation"}, {"behavior", "Isolated"}}, false, "default"}};
  for (const Case& c : cases) {
    const TemporaryFolder folder;
    json file = json::parse(bytes_of(test::data("tokenizer/llama3-style/tokenizer.json")));
    const bool own = c.step.is_null() || c.step["type"] != "Split";
    const json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own}};
    file["pre_tokenizer"] = c.step.is_null() ? bytes : json{{"type", "Sequence"}, {"pretokenizers", {c.step, bytes}}};
    file["model"]["ignore_merges"] = c.ignore_merges;
    folder.write("tokenizer.json", file.dump());
    ModelConfig config;
    config.vocabulary = 700;
    config.end_tokens = {641};
    GgufMetadata metadata, want;
    std::vector<std::string> notes;
    add_gguf_tokenizer(config, {folder.path()}, metadata, notes);
    want.add("tokenizer.ggml.model", "gpt2");
    want.add("tokenizer.ggml.pre", c.name);
    EXPECT_TRUE(metadata.bytes().starts_with(want.bytes())) << c.name;
    EXPECT_EQ(notes.size(), c.name == std::string("default") ? 1u : 0u) << c.name;
  }
}

TEST(Gguf, ATemplateAndNamedTokensComeWithTheTokenizer) {
  const TemporaryFolder folder;
  fs::copy(test::data("tokenizer/llama3-style/tokenizer.json"), folder.path());
  folder.write("tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|end_of_text|>"}})");
  folder.write("chat_template.jinja", "{{ messages[0].content }}");
  ModelConfig config;
  config.vocabulary = 700;
  config.end_tokens = {641, 8};
  GgufMetadata metadata;
  std::vector<std::string> notes;
  add_gguf_tokenizer(config, {folder.path()}, metadata, notes);
  GgufMetadata want;
  for (const auto& [key, id] : {std::pair("bos", 640), {"eos", 641}, {"eot", 8}})
    want.add(std::string("tokenizer.ggml.") + key + "_token_id", static_cast<u32>(id));
  want.add("tokenizer.ggml.add_bos_token", true);
  want.add("tokenizer.ggml.add_eos_token", false);
  want.add("tokenizer.chat_template", "{{ messages[0].content }}");
  EXPECT_TRUE(metadata.bytes().ends_with(want.bytes()));
  EXPECT_THAT(notes, testing::IsEmpty());
}

TEST(Gguf, OtherTemplatesComeUnderTheirNames) {
  const TemporaryFolder folder;
  fs::copy(test::data("tokenizer/llama3-style/tokenizer.json"), folder.path());
  folder.write("tokenizer_config.json",
               R"({"eos_token": "<|end_of_text|>", "chat_template": {"default": "d", "tool-use": "t", "rag": "r"}})");
  ModelConfig config;
  config.vocabulary = 700;
  GgufMetadata metadata, want, end;
  std::vector<std::string> notes;
  add_gguf_tokenizer(config, {.folder = folder.path(), .more_ends = {641, 8}}, metadata, notes);
  want.add("tokenizer.chat_template", "d");
  want.add("tokenizer.chat_template.rag", "r");
  want.add("tokenizer.chat_template.tool_use", "t");
  want.add("tokenizer.chat_templates", std::vector<std::string>{"rag", "tool_use"});
  EXPECT_TRUE(metadata.bytes().ends_with(want.bytes()));
  end.add("tokenizer.ggml.eos_token_id", u32{641});
  end.add("tokenizer.ggml.eot_token_id", u32{8});
  EXPECT_NE(metadata.bytes().find(end.bytes()), std::string::npos);
}

// Gives the numbers of a list as weights.
class Numbers final : public WeightSource {
 public:
  explicit Numbers(std::vector<double> values) : values_(std::move(values)) {}
  void read(const nn::Parameter&, i64 begin, std::span<double> out) const override {
    for (double& x : out) x = values_.at(static_cast<size_t>(begin++));
  }

 private:
  std::vector<double> values_;
};

// Writes one tensor to a GGUF file and returns its bytes as fp32 numbers.
std::vector<float> written(const GgufPart& part, GgufType type, i64 head_dim, const WeightSource& source) {
  const TemporaryFolder folder;
  GgufWriter writer(folder.path() / "x.gguf", {}, {{part.name, type, part.extents()}});
  write_gguf_tensor(part, type, head_dim, source, writer, 0);
  writer.finish();
  const std::string bytes = bytes_of(folder.path() / "x.gguf");
  std::vector<float> values(static_cast<size_t>(part.parts.front()->elems()));
  EXPECT_EQ(writer.file_bytes(), static_cast<i64>(bytes.size()));
  std::memcpy(values.data(), bytes.data() + bytes.size() - static_cast<size_t>(round_up(part.parts.front()->elems() * 4, 32)),
              values.size() * sizeof(float));
  return values;
}

TEST(Gguf, RowsLieInTheOrderAskedFor) {
  std::vector<double> counted(24);
  for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<double>(i);
  const Numbers source(counted);
  const auto matrix = nn::make_parameter("m", {8, 3}, DType::f32, {}), bias = nn::make_parameter("b", {8}, DType::f32, {});
  const auto as = [&](const nn::Parameter& p, GgufPart::Order order) { return GgufPart{.name = "x", .parts = {&p}, .order = order}; };
  using Order = GgufPart::Order;
  // With heads of 4 rows, interleaving turns the order of rows 0 1 2 3 into 0 2 1 3.
  EXPECT_THAT(written(as(*bias, Order::interleaved), GgufType::f32, 4, source), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(written(as(*matrix, Order::interleaved), GgufType::f32, 4, source),
              ElementsAre(0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11, 12, 13, 14, 18, 19, 20, 15, 16, 17, 21, 22, 23));
  EXPECT_THAT(written(as(*matrix, Order::transposed), GgufType::f32, 4, source),
              ElementsAre(0, 3, 6, 9, 12, 15, 18, 21, 1, 4, 7, 10, 13, 16, 19, 22, 2, 5, 8, 11, 14, 17, 20, 23));
  GgufPart gain{.name = "x", .parts = {bias.get()}};
  gain.added = 1, gain.factor = 0.5;
  EXPECT_THAT(written(gain, GgufType::f32, 4, source), ElementsAre(0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4));
}

TEST(Gguf, NumbersThatATypeDoesNotHoldAreRefused) {
  const auto p = nn::make_parameter("model.layers.3.mlp.up_proj.weight", {1, 32}, DType::f32, {});
  const auto refused = [&](double x, GgufType type) {
    std::vector<double> values(32, 1);
    values[9] = x;
    return error_of(ErrorCode::data, [&] { written({.name = "x", .parts = {p.get()}}, type, 4, Numbers(values)); });
  };
  EXPECT_THAT(refused(65520, GgufType::f16), AllOf(HasSubstr("model.layers.3.mlp.up_proj.weight"), HasSubstr("F16")));
  EXPECT_THAT(refused(1e8, GgufType::q8_0), HasSubstr("Q8_0"));
  EXPECT_THAT(refused(std::nan(""), GgufType::q8_0), HasSubstr("--dtype bf16 or fp32"));
  EXPECT_EQ(written({.name = "x", .parts = {p.get()}}, GgufType::f32, 4, Numbers(std::vector<double>(32, 65520)))[9], 65520);
}

TEST(Gguf, BlocksAreThoseOfGgml) {
  const std::string in = bytes_of(test::data("gguf/q8_0.f32")), want = bytes_of(test::data("gguf/q8_0.bytes"));
  std::vector<float> values(in.size() / sizeof(float));
  std::memcpy(values.data(), in.data(), in.size());
  ASSERT_EQ(values.size(), 32u * 32);
  std::string got(values.size() / 32 * 34, '\0');
  ASSERT_TRUE(encode_q8_0(values, std::as_writable_bytes(std::span(got))));
  EXPECT_EQ(difference(got, want), "");
}

TEST(Gguf, BlocksOfNumbersThatHaveNoneAreRefused) {
  std::array<std::byte, 34> bytes{};
  for (const float x : {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), 8'321'040.0f}) {
    std::array<float, 32> values{};
    values[31] = x;
    EXPECT_FALSE(encode_q8_0(values, bytes)) << x;
  }
  // Values so small that f16 has no scale for them must become zero, without an operation that C++ leaves undefined.
  std::array<float, 32> values{};
  values[5] = 1e-40f, values[6] = -1e-45f;
  ASSERT_TRUE(encode_q8_0(values, bytes));
  EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; }));
}

}  // namespace
}  // namespace spillway::models::gguf_file_test
