// Tests features of tokenizers that the fixtures do not cover: named tokens,
// ranges of tokens, streaming decoders, truncation, and texts that are not UTF-8.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "base/utf8.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/support_files.h"
#include "tests/data/tokenizer/support_tokenizer.h"
#include "tests/support/fixtures.h"

namespace spillway::data::tokenizer_parts_test {
namespace {

using nlohmann::json;
using test::made_of;
using test::small_tokenizer;

std::unique_ptr<Tokenizer> fixture(const std::string& style) { return read_tokenizer(test::data("tokenizer") / style); }

std::vector<std::string> parts_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> parts;
  for (const auto& [begin, end] : tokenizer.encode_with_ranges(text).ranges) {
    parts.push_back(text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  }
  return parts;
}

TEST(TokenizerNames, ComeFromTheFilesBeside) {
  const test::TemporaryFolder folder;
  const auto here = test::data("tokenizer/chat");
  std::filesystem::copy(here / "tokenizer.json", folder / "tokenizer.json");
  EXPECT_FALSE(read_tokenizer(folder.path())->named().end_of_text);
  for (const char* config : {"tokenizer_config_string.json", "tokenizer_config_list.json"}) {
    std::filesystem::copy(here / config, folder / "tokenizer_config.json", std::filesystem::copy_options::overwrite_existing);
    const auto tokenizer = read_tokenizer(folder / "tokenizer.json");
    EXPECT_EQ(tokenizer->named().end_of_text, tokenizer->id_of("<|eot_id|>"));
    EXPECT_EQ(tokenizer->named().begin_of_text, tokenizer->id_of("<|begin_of_text|>"));
    EXPECT_FALSE(tokenizer->named().padding);
  }
  folder.write("special_tokens_map.json", R"({"eos_token": "<|begin_of_text|>", "pad_token": {"content": "<|eot_id|>"}})");
  const auto named = read_tokenizer(folder.path())->named();
  EXPECT_NE(named.end_of_text, named.begin_of_text) << "tokenizer_config.json counts first";
  EXPECT_EQ(named.padding, named.end_of_text);
}

TEST(TokenizerRanges, BytesOfACharacterApart) {
  const auto tokenizer = fixture("gpt2-style");
  EXPECT_THAT(parts_of(*tokenizer, "世"), testing::ElementsAre("\xE4", "\xB8", "\x96"));
  EXPECT_THAT(parts_of(*fixture("llama2-style"), "the 世"), testing::ElementsAre("the", " ", "\xE4", "\xB8", "\x96"));
}

TEST(TokenizerRanges, JoinedCharactersAreWhole) {
  const auto tokenizer = made_of(small_tokenizer({{"normalizer", {{"type", "NFC"}}}}));
  EXPECT_THAT(parts_of(*tokenizer, "xe\u0301y"), testing::ElementsAre("x", "e\u0301", "e\u0301", "y"));
}

TEST(TokenizerRanges, SpecialTokensAroundCoverNothing) {
  const auto encoded = fixture("bert-style")->encode_with_ranges("the", true);
  EXPECT_EQ(encoded.ranges.front(), (ByteRange{0, 0}));
  EXPECT_EQ(encoded.ranges.back(), (ByteRange{3, 3}));
}

TEST(TokenizerRanges, BrokenBytes) {
  const auto tokenizer = made_of(small_tokenizer());
  const auto encoded = tokenizer->encode_with_ranges("a\xE4\xB8z\xFF");
  EXPECT_EQ(tokenizer->decode(encoded.ids), "a\uFFFDz\uFFFD");
  EXPECT_EQ(encoded.ranges[1], (ByteRange{1, 3}));
  EXPECT_EQ(encoded.ranges[3], (ByteRange{1, 3}));
  EXPECT_EQ(encoded.ranges[4], (ByteRange{3, 4}));
  EXPECT_EQ(encoded.ranges[5], (ByteRange{4, 5}));
}

TEST(TokenizerStream, GivesCharactersAsSoonAsTheyAreWhole) {
  const auto tokenizer = fixture("gpt2-style");
  const auto stream = tokenizer->stream_decoder();
  std::vector<std::string> pieces;
  for (const i32 id : tokenizer->encode("a世b")) pieces.push_back(stream->put(id));
  pieces.push_back(stream->finish());
  EXPECT_THAT(pieces, testing::ElementsAre("a", "", "", "世", "b", ""));
}

TEST(TokenizerStream, HoldsARunOfByteTokensUntilItEnds) {
  const auto tokenizer = made_of(small_tokenizer());
  const auto stream = tokenizer->stream_decoder();
  EXPECT_EQ(stream->put('a'), "");  // the byte is held back, since the sequence may still turn out to be invalid
  EXPECT_EQ(stream->put(0xFF), "");
  EXPECT_EQ(stream->finish(), "\uFFFD\uFFFD");
}

TEST(TokenizerStream, OfTheByteTokenizerNeverGivesHalfACharacter) {
  std::string joined;
  const auto stream = ByteTokenizer().stream_decoder();
  for (const i32 id : std::vector<i32>{0xE4, 0xB8, 0x96, 'x'}) {
    const std::string piece = stream->put(id);
    EXPECT_TRUE(is_utf8(piece));
    joined += piece;
  }
  EXPECT_EQ(joined + stream->finish(), "世x");
}

TEST(TokenizerDecoding, LeavesOutWhatIsNoToken) {
  const auto tokenizer = fixture("gpt2-style");
  EXPECT_EQ(tokenizer->decode(std::vector<i32>{-1, 100000, std::numeric_limits<i32>::max()}), "");
  EXPECT_EQ(tokenizer->token(-1), "");
}

TEST(TokenizerAddedTokens, WithAndWithoutSpacesAndWords) {
  const json tokens = {{{"id", 256}, {"content", "<l>"}, {"lstrip", true}, {"special", true}},
                       {{"id", 257}, {"content", "<r>"}, {"rstrip", true}, {"special", true}},
                       {{"id", 258}, {"content", "word"}, {"single_word", true}, {"special", false}, {"normalized", false}},
                       {{"id", 259}, {"content", "<l><r>"}, {"special", true}},
                       {{"id", 260}, {"content", "ab"}, {"normalized", true}}};
  const auto tokenizer = made_of(small_tokenizer({{"added_tokens", tokens}, {"normalizer", {{"type", "Lowercase"}}}}));
  EXPECT_THAT(tokenizer->encode(" <l> <r> ."), testing::ElementsAre(256, ' ', 257, '.'));
  EXPECT_THAT(tokenizer->encode("<l><r>"), testing::ElementsAre(259));
  EXPECT_THAT(tokenizer->encode("word,words"), testing::ElementsAre(258, ',', 'w', 'o', 'r', 'd', 's'));
  EXPECT_THAT(tokenizer->encode("xAB"), testing::ElementsAre('x', 260));
  EXPECT_EQ(tokenizer->decode(std::vector<i32>{'a', 256, 258}, true), "aword");
  EXPECT_THAT(parts_of(*tokenizer, " <l>\xFF"), testing::ElementsAre(" <l>", "\xFF", "\xFF", "\xFF"));
}

TEST(TokenizerCuts, KeepTheIds) {
  const std::string text = "In the beginning\nGod made  \n\n the world.\nIt isn't\n";
  for (const char* style : {"gpt2-style", "llama3-style", "bert-style"}) {
    const auto tokenizer = fixture(style);
    const auto at = static_cast<size_t>(tokenizer->last_cut(text));
    EXPECT_EQ(at, text.size() - 1) << style;
    for (size_t end = 0; end < text.size(); ++end) {
      const auto cut = static_cast<size_t>(tokenizer->last_cut(text.substr(0, end)));
      auto ids = tokenizer->encode(text.substr(0, cut));
      const auto rest = tokenizer->encode(text.substr(cut));
      ids.insert(ids.end(), rest.begin(), rest.end());
      EXPECT_EQ(ids, tokenizer->encode(text)) << style << " at " << cut;
    }
  }
  for (const char* style : {"llama2-style", "mistral-style", "gemma-style", "t5-style", "xlmr-style"})
    EXPECT_EQ(fixture(style)->last_cut(text), 0) << style;
}

TEST(TokenizerThreads, ShareATokenizer) {
  const auto tokenizer = fixture("llama2-style");
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i)
    texts.push_back("In the beginning " + std::to_string(i * i) + " \xFF" + std::string(static_cast<size_t>(i), 'x'));
  std::vector<std::vector<i32>> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer->encode(text));
  std::vector<std::vector<std::vector<i32>>> got(4);
  std::vector<std::thread> threads;
  for (auto& mine : got) {
    threads.emplace_back([&] {
      for (const std::string& text : texts) mine.push_back(tokenizer->encode(text));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : got) EXPECT_EQ(mine, expected);
}

// BPE merges a long word with a heap and a short word without one. Both algorithms must give the same tokens.
TEST(TokenizerBpe, LongWordsLikeShortOnes) {
  const json vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}, {"aab", 3}, {"abab", 4}, {"ba", 5}};
  const json merges = {"a b", "a ab", json::array({"ab", "ab"}), json::array({"b", "a"})};
  const json model = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}};
  const auto whole = made_of({{"model", model}});
  const auto in_words = made_of({{"model", model}, {"pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "c"}}}});
  std::string word = "aababbaab", text, with_marks;
  std::vector<i32> expected;
  // Nothing merges with "b" on the left, so one long text of such words gives the tokens of the separate words.
  for (int i = 0; i < 50; ++i) {
    text += "b" + word;
    with_marks += "cb" + word;
  }
  EXPECT_EQ(whole->encode(text), in_words->encode(with_marks));
}

}  // namespace
}  // namespace spillway::data::tokenizer_parts_test
