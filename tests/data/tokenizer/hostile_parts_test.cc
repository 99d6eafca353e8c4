// Tests tokenizer files made of random parts: chains of normalizers and decoders, patterns that repeat, tokens
// of all kinds, and long texts of few letters. Each file loads or gives an Error(data), and each text can be
// encoded and decoded or gives such an error. The two implementations of pattern matching find equal matches.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizer/stages/regex.h"
#include "tests/data/tokenizer/support_tokenizer.h"

namespace spillway::data::hostile_parts_test {
namespace {

using nlohmann::json;

class Parts {
 public:
  explicit Parts(unsigned seed) : random_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  template <class T, size_t N>
  const T& one_of(const std::array<T, N>& of) {
    return of[below(N)];
  }

  /// Returns a random text of a few parts, one of which may be repeated thousands of times.
  std::string text(size_t most_parts) {
    static const std::array<std::string, 12> kParts = {"a", "b", "ab", " ", "\n", "1", "\u00e9", "\u0301", "\u0316", "世", "\u2581", "!"};
    std::string made;
    for (size_t n = below(most_parts + 1); n > 0; --n) {
      const std::string& part = one_of(kParts);
      const size_t times = below(8) == 0 ? below(300) : 1;
      for (size_t i = 0; i < times; ++i) made += part;
    }
    return made;
  }

  std::string regex(int depth = 0) {
    static const std::array<std::string, 14> kAtoms = {"a",    "b",   ".",      "[a-z]", "\\s", "\\S", "\\p{L}",
                                                       "[^a]", "\\n", "\u00e9", "1",     "\\X", "\\w", "\\x{61}"};
    static const std::array<std::string, 16> kRepeats = {"",   "",   "",   "",    "",      "*",    "+",    "?",
                                                         "*+", "*?", "+?", "{2}", "{0,3}", "{2,}", "{3}+", "{70}"};
    static const std::array<std::string, 7> kOpen = {"(", "(?:", "(?=", "(?!", "(?>", "(?<=", "(?i:"};
    std::string made;
    for (size_t n = 1 + below(4); n > 0; --n) {
      const size_t kind = below(12);
      std::string atom = one_of(kAtoms);
      if (kind == 0 && depth < 3) {
        const std::string& open = one_of(kOpen);
        atom = open + (open == "(?<=" ? one_of(kAtoms) : regex(depth + 1)) + ")";
      } else if (kind == 1 && depth < 3) {
        atom = "(?:" + regex(depth + 1) + "|" + regex(depth + 1) + ")";
      } else if (kind == 2) {
        atom = below(2) == 0 ? "$" : "^";
        made += atom;
        continue;
      }
      made += atom + one_of(kRepeats);
    }
    return depth == 0 && below(2) == 0 ? made + "|" + regex(1) : made;
  }

  json pattern() { return below(2) == 0 ? json{{"String", "a" + text(1)}} : json{{"Regex", regex()}}; }
  json replace() { return {{"type", "Replace"}, {"pattern", pattern()}, {"content", text(3)}}; }

  json normalizer() {
    static const std::array<const char*, 8> kPlain = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"};
    switch (below(4)) {
      case 0:
        return {{"type", "Prepend"}, {"prepend", text(2)}};
      case 1:
        return replace();
      default:
        return {{"type", one_of(kPlain)}};
    }
  }
  json pre_tokenizer() {
    static const std::array<const char*, 5> kBehaviours = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    static const std::array<const char*, 5> kPlain = {"Whitespace", "BertPreTokenizer", "Digits", "Punctuation", "WhitespaceSplit"};
    switch (below(4)) {
      case 0:
        return {{"type", one_of(kPlain)}};
      case 1:
        return {{"type", "ByteLevel"}, {"add_prefix_space", below(2) == 0}, {"use_regex", below(2) == 0}};
      case 2:
        return {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", below(2) == 0 ? "first" : "always"}};
      default:
        return {{"type", "Split"}, {"pattern", pattern()}, {"behavior", one_of(kBehaviours)}, {"invert", below(2) == 0}};
    }
  }
  json decoder() {
    switch (below(8)) {
      case 0:
        return replace();
      case 1:
        return {{"type", "Strip"}, {"content", "a"}, {"start", below(4)}, {"stop", below(4)}};
      case 2:
        return {{"type", "Metaspace"}, {"replacement", "a"}};
      case 3:
        return {{"type", "WordPiece"}, {"prefix", "a"}, {"cleanup", below(2) == 0}};
      case 4:
        return {{"type", "BPEDecoder"}, {"suffix", "a"}};
      case 5:
        return {{"type", "ByteLevel"}};
      default:
        return {{"type", below(2) == 0 ? "Fuse" : "ByteFallback"}};
    }
  }
  json chain(const char* key, json (Parts::*make)()) {
    json steps = json::array();
    const size_t length = below(10) == 0 ? below(200) : below(4);
    if (below(4) == 0) {
      steps = json(length, (this->*make)());  // the chain consists of one step, repeated
    } else {
      for (size_t i = 0; i < length; ++i) steps.push_back((this->*make)());
    }
    return {{"type", "Sequence"}, {key, steps}};
  }
  json added_tokens(i64 first) {
    json tokens = json::array();
    for (size_t n = below(5); n > 0; --n) {
      const std::string content = below(4) == 0 ? " " : "a" + text(2);
      json token = {{"id", first + static_cast<i64>(tokens.size())}, {"content", content}};
      for (const char* flag : {"special", "single_word", "lstrip", "rstrip", "normalized"}) token[flag] = below(2) == 0;
      tokens.push_back(token);
    }
    return tokens;
  }
  json model() {
    json vocabulary = {{"[U]", 0}, {"a", 1}, {"b", 2}, {"aa", 3}, {"##a", 4}, {"aab", 5}, {std::string(1 + below(300), 'a') + "!", 6}};
    switch (below(4)) {
      case 0:
        return {{"type", "WordPiece"},
                {"unk_token", "[U]"},
                {"continuing_subword_prefix", "##"},
                {"max_input_chars_per_word", 1u << 30},
                {"vocab", vocabulary}};
      case 1: {
        json pieces = json::array();
        for (const auto& [token, id] : vocabulary.items()) pieces.push_back({token, -1.0 * id.get<double>()});
        return {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}};
      }
      case 2:
        return {{"type", "WordLevel"}, {"unk_token", "[U]"}, {"vocab", vocabulary}};
      default:
        return {{"type", "BPE"}, {"unk_token", "[U]"}, {"vocab", vocabulary}, {"merges", {"a a", "aa b"}}};
    }
  }
  json file() {
    json made = {{"model", model()}};
    if (below(2) == 0) made["normalizer"] = chain("normalizers", &Parts::normalizer);
    if (below(2) == 0) made["pre_tokenizer"] = chain("pretokenizers", &Parts::pre_tokenizer);
    if (below(2) == 0) made["decoder"] = chain("decoders", &Parts::decoder);
    if (below(2) == 0) made["added_tokens"] = added_tokens(7);
    return made;
  }

 private:
  std::mt19937 random_;
};

void use(const Tokenizer& tokenizer, const std::string& text) {
  const Encoded encoded = tokenizer.encode_with_ranges(text, true);
  ASSERT_EQ(encoded.ids.size(), encoded.ranges.size());
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    ASSERT_GE(encoded.ids[i], 0);
    ASSERT_LT(encoded.ids[i], tokenizer.vocabulary());
    ASSERT_GE(encoded.ranges[i].begin, 0);
    ASSERT_LE(encoded.ranges[i].begin, encoded.ranges[i].end);
    ASSERT_LE(encoded.ranges[i].end, static_cast<i64>(text.size()));
  }
  EXPECT_EQ(tokenizer.encode(text, true), encoded.ids);
  const std::string decoded = tokenizer.decode(encoded.ids);
  EXPECT_TRUE(is_utf8(decoded));
  const auto stream = tokenizer.stream_decoder();
  std::string joined;
  for (const i32 id : encoded.ids) joined += stream->put(id);
  EXPECT_EQ(joined + stream->finish(), decoded);
}

/// Tries `count` random tokenizer files, and returns how many could be used without an Error.
int try_files(unsigned seed, int count) {
  int used = 0;
  for (int i = 0; i < count; ++i) {
    Parts parts(seed + static_cast<unsigned>(i));
    const json file = parts.file();
    const std::string text = parts.text(20);
    try {
      use(*test::made_of(file), text);
      ++used;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::data) << e.what();
    }
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed + static_cast<unsigned>(i) << ": " << file.dump(-1, ' ', true) << "\n" << text;
      return used;
    }
  }
  return used;
}

TEST(HostileTokenizerParts, LoadOrAreErrors) { EXPECT_GT(try_files(1, 1500), 500); }
TEST(SoakHostileTokenizerParts, LoadOrAreErrors) { EXPECT_GT(try_files(100000, 100000), 30000); }

/// Returns the places of all matches as text, or "over the budget" if an Error was thrown.
std::string matches(const Regex& regex, const std::string& text) {
  std::string found;
  try {
    Regex::Walk walk(regex, text);
    while (walk.next()) found += std::to_string(walk.begin()) + "-" + std::to_string(walk.end()) + " ";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::data) << e.what();
    return "over the budget";
  }
  return found;
}

/// Compares the matches of each pattern with those of a version that is too long
/// to be run on a window of the text. Returns how many patterns were compared.
int try_patterns(unsigned seed, int count) {
  std::string no_match;
  while (no_match.size() < 1100) no_match += "\U0010FFFD";
  int compared = 0;
  for (int i = 0; i < count; ++i) {
    Parts parts(seed + static_cast<unsigned>(i));
    const std::string pattern = parts.regex();
    try {
      const Regex regex(pattern, "[test]"), never_in_window(pattern + "|" + no_match, "[test]");
      for (int n = 0; n < 3; ++n) {
        const std::string text = parts.text(20);
        const std::string quick = matches(regex, text), counted = matches(never_in_window, text);
        if (quick == "over the budget" || counted == "over the budget") continue;
        EXPECT_EQ(quick, counted) << "seed " << seed + static_cast<unsigned>(i) << ", " << pattern << "\n" << text;
        ++compared;
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::data) << e.what();
    }
    if (::testing::Test::HasFailure()) return compared;
  }
  return compared;
}

TEST(HostilePatterns, MatchTheSameInAWindow) { EXPECT_GT(try_patterns(1, 1000), 1500); }
TEST(SoakHostilePatterns, MatchTheSameInAWindow) { EXPECT_GT(try_patterns(100000, 100000), 150000); }

}  // namespace
}  // namespace spillway::data::hostile_parts_test
