// Tests the error messages about contents that a tokenizer.json must not have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizer/tokenizer.h"
#include "tests/data/support_files.h"
#include "tests/data/tokenizer/support_tokenizer.h"
#include "tests/support/fixtures.h"

namespace spillway::data::refusals_test {
namespace {

using nlohmann::json;
using test::error_of;
using test::made_of;
using test::small_tokenizer;

std::string refusal_of(const json& with) {
  return error_of(ErrorCode::data, [&] { made_of(small_tokenizer(with)); });
}

TEST(TokenizerRefusals, UnknownPartsAreNamed) {
  EXPECT_EQ(refusal_of({{"normalizer", {{"type", "Unheard"}}}}),
            "[tokenizer] expected a normalizer that this program supports as normalizer.type, got \"Unheard\", in a.json; use a file that "
            "Hugging "
            "Face's tokenizers wrote");
  EXPECT_THAT(refusal_of({{"pre_tokenizer", {{"type", "UnicodeScripts"}}}}),
              testing::HasSubstr("pre_tokenizer.type, got \"UnicodeScripts\""));
  EXPECT_THAT(refusal_of({{"decoder", {{"type", "CTC"}, {"decoders", nullptr}}}}), testing::HasSubstr("decoder.type, got \"CTC\""));
  EXPECT_THAT(refusal_of({{"post_processor", {{"type", "X"}}}}), testing::HasSubstr("post_processor.type, got \"X\""));
  EXPECT_THAT(refusal_of({{"model", {{"type", "X"}}}}), testing::HasSubstr("model.type, got \"X\""));
  EXPECT_THAT(refusal_of({{"surprise", 1}}), testing::HasSubstr("got 1"));
  EXPECT_THAT(refusal_of({{"model", {{"dropout", 0.1}}}}), testing::HasSubstr("expected null or 0 as model.dropout, got 0.1"));
  EXPECT_THAT(refusal_of({{"normalizer", {{"type", "NFC"}, {"locale", "tr"}}}}), testing::HasSubstr("got \"tr\""));
}

TEST(TokenizerRefusals, UnknownKeysThatSayNothingPass) {
  made_of(small_tokenizer({{"normalizer", {{"type", "NFC"}, {"locale", nullptr}, {"new", false}}}}));
}

TEST(TokenizerRefusals, WhatDoesNotFit) {
  EXPECT_THAT(refusal_of({{"model", {{"vocab", {{"a", 1 << 30}}}}}}), testing::HasSubstr("model.vocab, got 1073741824"));
  EXPECT_THAT(refusal_of({{"model", {{"vocab", {{"a", 7}}}}}}), testing::HasSubstr("model.vocab, got 7"));
  EXPECT_THAT(refusal_of({{"model", {{"merges", json::array({json::array({"a", "b"})})}}}}),
              testing::HasSubstr("tokens of the vocabulary as model.merges"));
  EXPECT_THAT(refusal_of({{"model", {{"merges", {"<0x00>"}}}}}), testing::HasSubstr("two tokens"));
  EXPECT_THAT(refusal_of({{"model", {{"unk_token", "no"}}}}), testing::HasSubstr("model.unk_token"));
  EXPECT_THAT(refusal_of({{"added_tokens", {{{"id", 300}, {"content", "<x>"}, {"special", true}}}}}),
              testing::HasSubstr("the id 256 for \"<x>\""));
  const json step = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(refusal_of({{"pre_tokenizer", step}}), testing::HasSubstr("PCRE2 refuses"));
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) deep = {{"type", "Sequence"}, {"normalizers", {deep}}};
  EXPECT_THAT(refusal_of({{"normalizer", deep}}), testing::HasSubstr("16 deep"));
}

TEST(TokenizerRefusals, RewritingThatNeverEnds) {
  json steps = json::array();
  for (int i = 0; i < 60; ++i) steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  const auto tokenizer = made_of(small_tokenizer({{"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}}}));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { tokenizer->encode("aaa"); }), testing::HasSubstr("Prepend"));
  EXPECT_THAT(refusal_of({{"decoder", {{"type", "Sequence"}, {"decoders", steps}}}}), testing::HasSubstr("65536 times"));
}

TEST(TokenizerRefusals, RegexesThatBacktrackForever) {
  const json step = {{"type", "Split"}, {"pattern", {{"Regex", "(a|aa)+$"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = made_of(small_tokenizer({{"pre_tokenizer", step}}));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { tokenizer->encode(std::string(100, 'a') + "b"); }), testing::HasSubstr("backtracks less"));
}

TEST(TokenizerRefusals, FilesThatAreNone) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(error_of(ErrorCode::data, [&] { read_tokenizer(folder.path()); }), testing::HasSubstr("tokenizer.json"));
  const std::string file = folder.write("tokenizer.json", "{\"model\": ");
  EXPECT_THAT(error_of(ErrorCode::data, [&] { read_tokenizer(file); }), testing::HasSubstr("expected JSON"));
  folder.write("tokenizer.json", "[]");
  EXPECT_THAT(error_of(ErrorCode::data, [&] { read_tokenizer(file); }), testing::HasSubstr("expected an object, got an array of 0"));
}

TEST(TokenizerRefusals, NamedTokensThatAreNotThere) {
  const test::TemporaryFolder folder;
  folder.write("tokenizer.json", small_tokenizer().dump());
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_THAT(error_of(ErrorCode::data, [&] { read_tokenizer(folder.path()); }), testing::HasSubstr("eos_token, got \"</s>\""));
}

TEST(TokenizerRefusals, NamedTokensOfOddTypes) {
  const test::TemporaryFolder folder;
  folder.write("tokenizer.json", small_tokenizer().dump());
  for (const char* value :
       {"5", "true", "[]", "[\"a\"]", "{}", "{\"content\": 5}", "{\"content\": {\"content\": \"a\"}}", "1e300", "\"aa\""}) {
    folder.write("tokenizer_config.json", "{\"eos_token\": " + std::string(value) + "}");
    EXPECT_THAT(error_of(ErrorCode::data, [&] { read_tokenizer(folder.path()); }), testing::HasSubstr("eos_token")) << value;
  }
  folder.write("tokenizer_config.json", "[[]]");
  EXPECT_THAT(error_of(ErrorCode::data, [&] { read_tokenizer(folder.path()); }), testing::HasSubstr("expected an object"));
}

}  // namespace
}  // namespace spillway::data::refusals_test
