#include "data/tokenizer/hugging_face/train_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "data/tokenizer/byte_tokenizer.h"
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
  // "ab" and "cd" occur 4 times each, and the pair with the lower ids is merged first. Of the
  // pairs that then occur twice, the space (a byte) before "cd" comes first, then "ab" "ab".
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

// Repeated words take no more memory. If there are too many different words,
// training ends with an error, before the system kills the process for its memory.
TEST(BpeTraining, EndsWhereDifferentWordsWouldTakeTooMuchMemory) {
  const auto text_of = [](bool different) {
    return [different, number = 0](std::string& text) mutable {
      text = "word" + std::string(1, static_cast<char>('a' + (different ? number % 26 : 0))) +
             std::string(static_cast<size_t>(different ? number / 26 : 0), 'x');
      return ++number < 2000;
    };
  };
  const BpeTraining training{.vocabulary = 258, .memory_bytes = 100'000};
  EXPECT_EQ(train_byte_level_bpe(text_of(false), training).vocabulary, 258);
  try {
    train_byte_level_bpe(text_of(true), training);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused);
    EXPECT_THAT(error.what(), testing::HasSubstr("words that fit into 97.7 KiB of memory"));
  }
}

/// Returns the BPE merges of one word, computed from their definition: all pairs are counted anew, and the
/// most frequent pair (of equals, the one with the lowest ids) is merged from left to right, until no pair
/// occurs twice. Letters have the lowest ids, then come merges; `first` is the id of the first merge.
std::vector<std::pair<i32, i32>> merges_by_definition(std::vector<i32> word, i32 first) {
  std::vector<std::pair<i32, i32>> merges;
  for (;; ++first) {
    std::map<std::pair<i32, i32>, int> counts;
    for (size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    const auto best = std::ranges::max_element(counts, [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end() || best->second < 2) return merges;
    merges.push_back(best->first);
    std::vector<i32> joined;
    for (size_t i = 0; i < word.size(); ++i) {
      const bool here = i + 1 < word.size() && std::pair{word[i], word[i + 1]} == best->first;
      joined.push_back(here ? first : word[i]);
      i += here ? 1 : 0;
    }
    word = joined;
  }
}

TEST(BpeTraining, MergesOfRandomWordsAreThoseOfTheDefinition) {
  std::mt19937 random(1);
  for (int n = 0; n < 60; ++n) {
    const auto letters = static_cast<unsigned>(1 + n % 4);
    std::string text(static_cast<size_t>(2 + 5 * n), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % letters);
    const auto model = nlohmann::json::parse(trained({text}, {.vocabulary = 5000, .pattern = "[a-z]+"}).tokenizer_json)["model"];
    std::vector<i32> word;
    for (const char c : text) word.push_back(model["vocab"][std::string(1, c)].get<i32>());
    std::vector<std::string> tokens(257);
    for (const auto& [token, id] : model["vocab"].items()) {
      if (id < 257) tokens[id.get<size_t>()] = token;
    }
    nlohmann::json expected = nlohmann::json::array();
    for (const auto& [left, right] : merges_by_definition(word, 257)) {
      const std::string a = tokens[static_cast<size_t>(left)], b = tokens[static_cast<size_t>(right)];
      expected.push_back(a + " " + b);
      tokens.push_back(a + b);
    }
    EXPECT_EQ(model["merges"], expected) << text;
  }
}

// A long word has a merge for almost every letter. Training would take hours if each merge took time in proportion to the word.
TEST(BpeTraining, ALongWordTakesTimeInProportion) {
  std::mt19937 random(2);
  std::string half(50000, 'a');
  for (char& c : half) c = static_cast<char>('a' + random() % 26);
  const auto made = trained({half + half}, {.vocabulary = 20000, .pattern = "[a-z]+"});
  EXPECT_EQ(made.vocabulary, 20000);
}

TEST(BpeTraining, RefusesWhatHasNoRoom) {
  const auto refusal = [](const BpeTraining& training) { return test::error_of(ErrorCode::usage, [&] { trained({}, training); }); };
  EXPECT_THAT(refusal({.vocabulary = 256}), testing::HasSubstr("from 257"));
  EXPECT_THAT(refusal({.vocabulary = i64{1} << 40}), testing::HasSubstr("to 16777216"));
  EXPECT_THAT(refusal({.vocabulary = 1000, .special_tokens = {"<a>", "<a>"}}), testing::HasSubstr("<a>"));
  EXPECT_THAT(refusal({.vocabulary = 1000, .special_tokens = {"a"}}), testing::HasSubstr("\"a\""));
  EXPECT_EQ(trained({}, {.vocabulary = 257}).vocabulary, 257);
}

TEST(ByteTokenizerFiles, GiveEachByteItsOwnId) {
  const test::TemporaryFolder folder;
  const TrainedTokenizer files = byte_tokenizer_files();
  folder.write("tokenizer.json", files.tokenizer_json);
  folder.write("tokenizer_config.json", files.tokenizer_config_json);
  const auto tokenizer = read_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(tokenizer->named().end_of_text, std::nullopt);
  std::string text = "\x01 In 1905,  they'll say:\r\n\t\"ä€\xF0\x9F\x98\x80\" <|endoftext|> ";
  for (char c = 1; c < 127; ++c) text += c;
  text += "\x7F";
  const std::vector<i32> ids = tokenizer->encode(text, true);
  EXPECT_EQ(ids, ByteTokenizer().encode(text));
  EXPECT_EQ(tokenizer->decode(ids, false), text);
  for (i32 byte = 0; byte < 256; ++byte) EXPECT_EQ(tokenizer->id_of(byte_character(static_cast<char>(byte))), byte);
}

}  // namespace
}  // namespace spillway::data::train_bpe_test
