#include "data/tokenizer/train_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/tokenizer/tokenizer.h"
#include "tests/data/support_files.h"
#include "tests/support/temporary_folder.h"

#include <nlohmann/json.hpp>

namespace spillway::data::train_bpe_test {
namespace {

TrainedTokenizer trained(std::vector<std::string> texts, const BpeTraining& training) {
  size_t at = 0;
  return train_byte_level_bpe(
      [&](std::string& text) {
        if (at == texts.size()) return false;
        text = texts[at++];
        return true;
      },
      training);
}

const std::vector<std::string> kTexts = {"low lower lowest", "newer newest wide wider", "low low\n", "\xFF\xFE broken", "don't 世界 世界"};

TEST(BpeTraining, MergesTheMostFrequentPairOfTheLowestIds) {
  const auto made = trained({"abab abab cdcd cdcd"}, {.vocabulary = 1000});
  const auto model = nlohmann::json::parse(made.tokenizer_json)["model"];
  // ab and cd 4 times each, the lower ids first; of those twice there the space (a byte) before cd comes first, then ab ab.
  EXPECT_EQ(model["merges"], nlohmann::json({"a b", "c d", "\u0120 cd", "ab ab", "\u0120cd cd"}));
  EXPECT_EQ(made.vocabulary, 1 + 256 + 5);
}

TEST(BpeTraining, GivesTextsBackAndNamesTheEnd) {
  const test::TemporaryFolder folder;
  const auto made = trained(kTexts, {.vocabulary = 280});
  folder.write("tokenizer.json", made.tokenizer_json);
  folder.write("tokenizer_config.json", made.tokenizer_config_json);
  const auto tokenizer = read_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->vocabulary(), made.vocabulary);
  EXPECT_EQ(tokenizer->named().end_of_text, 0);
  for (const std::string text : {"low lower lowest", "don't 世界 \t\n", "unseen: 42 ½"})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_LT(tokenizer->encode("lower").size(), 5u);
  EXPECT_GT(tokenizer->last_cut("low\nlower"), 0);
}

TEST(BpeTraining, OrderOfTextsDoesNotMatter) {
  auto texts = kTexts;
  const auto made = trained(texts, {.vocabulary = 300});
  std::ranges::reverse(texts);
  EXPECT_EQ(trained(texts, {.vocabulary = 300}).tokenizer_json, made.tokenizer_json);
}

TEST(BpeTraining, TakesAnotherPatternAndOtherTokens) {
  const test::TemporaryFolder folder;
  const auto made = trained({"1234 1234 1234"}, {.vocabulary = 1000, .special_tokens = {"<a>", "<b>"}, .pattern = R"(\p{N}{1,3}|\D+)"});
  const auto file = folder.write("tokenizer.json", made.tokenizer_json);
  const auto tokenizer = read_tokenizer(file);
  EXPECT_EQ(tokenizer->encode("<b>1234").size(), 3u) << "<b>, 123, 4";
  EXPECT_FALSE(tokenizer->named().end_of_text);
}

TEST(BpeTraining, RefusesWhatHasNoRoom) {
  const auto refusal = [](const BpeTraining& training) { return test::error_of(ErrorCode::usage, [&] { trained({}, training); }); };
  EXPECT_THAT(refusal({.vocabulary = 256}), testing::HasSubstr("from 257"));
  EXPECT_THAT(refusal({.vocabulary = i64{1} << 40}), testing::HasSubstr("to 16777216"));
  EXPECT_THAT(refusal({.vocabulary = 1000, .special_tokens = {"<a>", "<a>"}}), testing::HasSubstr("<a>"));
  EXPECT_THAT(refusal({.vocabulary = 1000, .special_tokens = {"a"}}), testing::HasSubstr("\"a\""));
  EXPECT_EQ(trained({}, {.vocabulary = 257}).vocabulary, 257);
}

}  // namespace
}  // namespace spillway::data::train_bpe_test
