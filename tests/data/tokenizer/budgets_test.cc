// Tests tokenizer files and texts that were made to be slow or large. Each is refused, or takes time in proportion to the
// text and gives the right result. A quadratic algorithm would take hours or run out of memory, so the test would not end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "data/text/unicode.h"
#include "data/tokenizer/models/merges.h"
#include "tests/data/support_files.h"
#include "tests/data/tokenizer/support_tokenizer.h"

namespace spillway::data::budgets_test {
namespace {

using nlohmann::json;
using test::error_of;
using test::made_of;
using test::small_tokenizer;
using testing::HasSubstr;

std::string repeated(const std::string& what, size_t times) {
  std::string made;
  for (size_t i = 0; i < times; ++i) made += what;
  return made;
}

json sequence(const char* key, const std::vector<json>& steps) { return {{"type", "Sequence"}, {key, steps}}; }
json replace(const std::string& what, const std::string& by) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", by}};
}
json split(const std::string& regex) { return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}}; }

json added(i32 id, const std::string& text, const json& with = json::object()) {
  json token = {{"id", id}, {"content", text}, {"special", true}};
  token.merge_patch(with);
  return token;
}

std::string load_refusal(const json& with) {
  return error_of(ErrorCode::data, [&] { made_of(small_tokenizer(with)); });
}
std::string encode_refusal(const json& with, const std::string& text) {
  const auto tokenizer = made_of(small_tokenizer(with));
  return error_of(ErrorCode::data, [&] { tokenizer->encode(text); });
}

TEST(TokenizerBudgets, AFileHasSoManySteps) {
  const std::vector<json> steps(2000, {{"type", "Fuse"}});  // 200,000 such steps caused a recursion of that depth in earlier versions
  EXPECT_THAT(load_refusal({{"decoder", sequence("decoders", steps)}}), HasSubstr("in the file as decoder.decoders"));
  const std::vector<json> lower(1025, {{"type", "Lowercase"}}), words(1025, {{"type", "Whitespace"}});
  EXPECT_THAT(load_refusal({{"normalizer", sequence("normalizers", lower)}}), HasSubstr("at most 1024 steps"));
  EXPECT_THAT(load_refusal({{"pre_tokenizer", sequence("pretokenizers", words)}}), HasSubstr("at most 1024 steps"));
}

TEST(TokenizerBudgets, HundredsOfStepsRunAsOne) {
  const std::vector<json> fuse(300, {{"type", "Fuse"}});
  const auto tokenizer = made_of(small_tokenizer({{"decoder", sequence("decoders", fuse)}}));
  EXPECT_EQ(tokenizer->decode(std::vector<i32>{0x41, 0x42}), "<0x41><0x42>");
}

TEST(TokenizerBudgets, AFileHasSoMuchOfRegularExpressions) {
  EXPECT_THAT(load_refusal({{"pre_tokenizer", split(repeated("a{1}+", 100000))}}), HasSubstr("at most 16384 bytes of regular expressions"));
  EXPECT_THAT(load_refusal({{"pre_tokenizer", split(repeated("a{1}+", 1000))}}), HasSubstr("regular expression of at most 4096 bytes"));
  const std::vector<json> steps(17, split(repeated("a", 1000)));
  EXPECT_THAT(load_refusal({{"pre_tokenizer", sequence("pretokenizers", steps)}}), HasSubstr("at most 16384 bytes"));
}

TEST(TokenizerBudgets, MessagesShowLittleOfTheFile) {
  const std::string long_name = repeated("\u00e9", 500000);
  EXPECT_LT(load_refusal({{"normalizer", {{"type", long_name}}}}).size(), 1000u);
  EXPECT_LT(load_refusal({{long_name, 1}}).size(), 1000u);
  EXPECT_TRUE(is_utf8(load_refusal({{"normalizer", {{"type", "x" + long_name}}}})));
}

TEST(TokenizerBudgets, PatternsAreChargedForAllThatTheyLookAt) {
  const std::string fox = repeated(repeated("the quick brown fox jumps over the lazy dog and ", 3) + "\n", 300);
  EXPECT_THAT(encode_refusal({{"pre_tokenizer", split("(?:[a-z ]*[a-z ]*[a-z ]*[a-z ]*!|.)")}}, fox),
              testing::AllOf(HasSubstr("pre_tokenizer"), HasSubstr("a.json"), HasSubstr("2048 steps for each byte"),
                             HasSubstr("text of 43500 bytes"), HasSubstr("backtracks less")));
  const std::string letters(20000, 'a');
  for (const char* pattern : {
           "(?:a*+b|.)",           // each match scans to the end of the text, in one step
           "(?=.*x).|.",           // each look-ahead scans to the end of the text
           "(?:(?=a*+b?)a)*!|.",   // a look-ahead scans once for each round of a loop
           "(?:a{50000}b|.)",      // a repeat that fails after it has passed over all its required letters
           "(?<=ba{50000})x|.",    // a look-behind goes back over the text
           "(?:(a*)\\1b|.)",       // a back reference compares the text that it refers to again
           "[a-z]*[a-z]*[a-z]*1",  // one search tries each position of the text
           "(?:(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)!|.)",
           "(?:a?a?a?a?a?a?a?a?a?a?a?a?a?a?aaaaaaaaaaaaaa!|.)",
           "(a|aa)+!|.",
       }) {
    EXPECT_THAT(encode_refusal({{"pre_tokenizer", split(pattern)}}, letters + "\n1!"), HasSubstr("backtracks less")) << pattern;
  }
  EXPECT_THAT(encode_refusal({{"pre_tokenizer", split("(?:\\Xb|.)")}}, "e" + repeated("\u0301", 20000)), HasSubstr("backtracks less"));
}

TEST(TokenizerBudgets, LongRunsOfOneKindAreNoHarm) {
  // The pattern is one that real tokenizers use. Its part `\s*[\r\n]+`
  // backtracks over all spaces in a row of spaces, but only once.
  const std::string pattern = R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const auto tokenizer = made_of(small_tokenizer({{"pre_tokenizer", split(pattern)}}));
  for (const char run : {' ', 'a', '1', '-', '\n'}) {
    const std::string text = std::string(200000, run) + "b";
    EXPECT_EQ(tokenizer->encode(text).size(), text.size()) << run;
  }
}

TEST(TokenizerBudgets, LiteralsAreFoundInOneWay) {
  const std::string text(400000, 'a'), almost = std::string(100000, 'a') + "b";
  const auto tokenizer =
      made_of(small_tokenizer({{"normalizer", replace(almost, "c")},
                               {"decoder", sequence("decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}, replace(almost, "c")})}}));
  EXPECT_EQ(tokenizer->encode(text).size(), text.size());
  EXPECT_EQ(tokenizer->encode(text + "b").size(), text.size() - 100000 + 1);
  EXPECT_EQ(tokenizer->decode(std::vector<i32>(text.begin(), text.end())), text);
  const std::string with_match = text + "b";
  EXPECT_EQ(tokenizer->decode(std::vector<i32>(with_match.begin(), with_match.end())), text.substr(100000) + "c");
}

TEST(TokenizerBudgets, RewritingIsBoundedInTheMidstOfAStep) {
  EXPECT_THAT(encode_refusal({{"normalizer", replace("a", std::string(1000000, 'b'))}}, std::string(10000, 'a')),
              testing::AllOf(HasSubstr("normalizer"), HasSubstr("at most 385536 bytes"), HasSubstr("Prepend")));
  const std::vector<json> prepends(1000, {{"type", "Prepend"}, {"prepend", std::string(1000, 'x')}});
  EXPECT_THAT(encode_refusal({{"normalizer", sequence("normalizers", prepends)}}, "aaa"), HasSubstr("normalizer"));
  // A chain of normalizers lets the text grow and shrink a thousand times.
  std::vector<json> waves;
  for (int i = 0; i < 500; ++i) {
    waves.push_back(replace("a", std::string(30, 'a')));
    waves.push_back(replace(std::string(30, 'a'), "a"));
  }
  EXPECT_THAT(encode_refusal({{"normalizer", sequence("normalizers", waves)}}, std::string(10000, 'a')), HasSubstr("2048 steps"));
  const std::vector<json> prefix(1, {{"type", "Prepend"}, {"prepend", std::string(100000, 'x')}});
  EXPECT_THAT(load_refusal({{"normalizer", prefix[0]}, {"added_tokens", {added(256, "ab", {{"special", false}, {"normalized", true}})}}}),
              HasSubstr("added_tokens"));
}

TEST(TokenizerBudgets, MarksInDisorderAreSorted) {
  // The text has 200,000 marks of combining class 230, then as many of class 220. Canonical order puts class 220 first.
  const size_t count = 200000;
  const std::string above = repeated("\u0301", count), below = repeated("\u0316", count);
  EXPECT_EQ(normal_form("x" + above + below, NormalForm::nfd), "x" + below + above);
  EXPECT_EQ(normal_form("e" + above + below, NormalForm::nfc), "\u00e9" + below + above.substr(2));
  EXPECT_EQ(normal_form("\u0344" + below, NormalForm::nfd), below + "\u0308\u0301") << "marks that decompose";
}

TEST(TokenizerBudgets, LongAddedTokensThatNearlyOccurEverywhere) {
  EXPECT_THAT(encode_refusal({{"added_tokens", {added(256, std::string(30000, 'a') + "b")}}}, std::string(30000, 'a')),
              HasSubstr("added_tokens"));
  EXPECT_THAT(encode_refusal({{"added_tokens", {added(256, " ", {{"rstrip", true}})}}}, std::string(30000, ' ')),
              HasSubstr("added_tokens"));
  const auto left = made_of(small_tokenizer({{"added_tokens", {added(256, " ", {{"lstrip", true}})}}}));
  EXPECT_EQ(left->encode(std::string(200000, ' ')), std::vector<i32>(200000, 256));
}

TEST(TokenizerBudgets, TokensThatTakeEachOthersSpaces) {
  const json tokens = {added(256, "b", {{"rstrip", true}, {"normalized", true}, {"special", false}}),
                       added(257, " ", {{"lstrip", true}, {"normalized", true}, {"special", false}})};
  const auto tokenizer =
      made_of(small_tokenizer({{"added_tokens", tokens}, {"pre_tokenizer", {{"type", "ByteLevel"}, {"use_regex", false}}}}));
  const Encoded encoded = tokenizer->encode_with_ranges("b  b");
  EXPECT_THAT(encoded.ids, testing::ElementsAre(256, 257, 257, 256));
  for (const auto& [begin, end] : encoded.ranges) EXPECT_LE(begin, end);
}

TEST(TokenizerBudgets, WordsAreLookedUpInProportion) {
  const json vocabulary = {{"[U]", 0}, {"a", 1}, {"##a", 2}, {std::string(30000, 'c'), 3}};
  const json word_piece = {{"type", "WordPiece"},
                           {"unk_token", "[U]"},
                           {"continuing_subword_prefix", "##"},
                           {"max_input_chars_per_word", i64{1} << 60},
                           {"vocab", vocabulary}};
  const auto pieces = made_of({{"model", word_piece}});
  EXPECT_THAT(error_of(ErrorCode::data, [&] { pieces->encode(std::string(30000, 'a')); }), HasSubstr("2048 steps"));
  EXPECT_EQ(pieces->encode("aaa").size(), 3u);
  const json pairs = json::array({json::array({"<unk>", 0}), json::array({"a", -1}), json::array({std::string(30000, 'a'), -2})});
  const auto unigram = made_of({{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pairs}}}});
  EXPECT_THAT(error_of(ErrorCode::data, [&] { unigram->encode(std::string(29999, 'a')); }), HasSubstr("2048 steps"));
}

TEST(TokenizerBudgets, AffixesAndTemplatesAreShort) {
  EXPECT_THAT(load_refusal({{"model", {{"continuing_subword_prefix", std::string(1000000, 'p')}}}}), HasSubstr("at most 16 bytes"));
  EXPECT_THAT(load_refusal({{"model", {{"end_of_word_suffix", std::string(17, 'p')}}}}), HasSubstr("at most 16 bytes"));
  json single = {{{"Sequence", {{"id", "A"}}}}};
  for (int i = 0; i < 257; ++i) single.push_back({{"SpecialToken", {{"id", "x"}}}});
  const json tokens = {{"x", {{"id", "x"}, {"ids", {1}}}}};
  EXPECT_THAT(load_refusal({{"post_processor", {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}}}}),
              HasSubstr("at most 256 special token ids"));
}

/// Returns texts of 16 lower-case letters and signs with equal hashes, found by inverting the last step of hash_of.
std::vector<std::string> texts_of_one_hash(size_t count) {
  constexpr u64 kFactor = 0xD6E8FEB86659FD93u;
  u64 inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
  std::vector<std::string> texts;
  for (u64 n = 0; texts.size() < count; ++n) {
    u64 first = 0;
    for (int i = 0; i < 8; ++i) first |= (u64{'a'} + (n >> (4 * i) & 15)) << (8 * i);
    u64 hash = ((0x9E3779B97F4A7C15u ^ 16) ^ first) * kFactor;
    hash ^= hash >> 32;
    const u64 wanted = 0x123456789ABCDEF0u;
    const u64 second = (wanted ^ wanted >> 32) * inverse ^ hash;
    constexpr u64 kHigh = 0x8080808080808080u, kSigns = 0x6060606060606060u;
    // The text must consist of ASCII characters without control characters.
    if ((second & kHigh) != 0 || (((second & kSigns) + kSigns) & kHigh) != kHigh) continue;
    std::string text(16, '\0');
    std::memcpy(text.data(), &first, 8);
    std::memcpy(text.data() + 8, &second, 8);
    texts.push_back(text);
  }
  return texts;
}

TEST(TokenizerBudgets, TokensOfOneHash) {
  const auto texts = texts_of_one_hash(520);
  ASSERT_EQ(hash_of(texts[0]), hash_of(texts[519]));
  json vocabulary = json::object();
  for (const std::string& text : texts) vocabulary[text] = vocabulary.size();
  EXPECT_THAT(error_of(ErrorCode::data,
                       [&] {
                         made_of({{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}});
                       }),
              HasSubstr("hashes as model.vocab"));
  Merges merges(600);
  size_t put = 0;
  constexpr u64 kFactor = 0x9E3779B97F4A7C15u;
  u64 inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
  for (u64 i = 0; i < 600; ++i) {
    const u64 high = i << 32, key = (high | i) * inverse;  // `key` is chosen so that the lower half of its hash is 0
    put += merges.put(static_cast<i32>(key >> 32), static_cast<i32>(key & 0xFFFFFFFF), {0, 0});
  }
  EXPECT_LT(put, 600u);
  EXPECT_GT(put, 500u);
}

json decoding(const std::string& token, const json& decoder) {
  return {{"model", {{"type", "BPE"}, {"vocab", {{token, 0}}}, {"merges", json::array()}}}, {"decoder", decoder}};
}
std::string decoded(const json& file, size_t times) { return made_of(file)->decode(std::vector<i32>(times, 0)); }

TEST(TokenizerBudgets, DecodersTakeTimeInProportion) {
  const json fuse = {{"type", "Fuse"}};
  const json strip = {{"type", "Strip"}, {"content", "a"}, {"start", 0}, {"stop", 300000}};
  EXPECT_EQ(decoded(decoding("a", sequence("decoders", {fuse, strip})), 300002), "aa");
  const std::string twice = repeated("ae", 500000);
  EXPECT_EQ(decoded(decoding(twice, {{"type", "BPEDecoder"}, {"suffix", "e"}}), 2), repeated("a ", 500000) + std::string(500000, 'a'));
  EXPECT_EQ(decoded(decoding(repeated(" .", 500000), {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}), 1),
            std::string(500000, '.'));
}

TEST(TokenizerBudgets, DecodersGrowSoMuch) {
  std::vector<json> steps(1, {{"type", "Fuse"}});
  for (int i = 0; i < 3; ++i) steps.push_back(replace("a", std::string(30, 'a')));
  const auto tokenizer = made_of(decoding("a", sequence("decoders", steps)));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { tokenizer->decode(std::vector<i32>(1000, 0)); }), HasSubstr("decoder in a.json"));
  const auto stream = tokenizer->stream_decoder();
  EXPECT_THAT(error_of(ErrorCode::data,
                       [&] {
                         for (int i = 0; i < 1000; ++i) stream->put(0);
                       }),
              HasSubstr("decoder in a.json"));
}

}  // namespace
}  // namespace spillway::data::budgets_test
