// Tests damaged and made-up tokenizer files, and texts of random bytes. Each
// file loads or gives an Error, and each text can be encoded and decoded.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "base/error.h"
#include "base/utf8.h"
#include "tests/data/support_files.h"
#include "tests/data/tokenizer/support_tokenizer.h"
#include "tests/support/fixtures.h"

namespace spillway::data::hostile_test {
namespace {

using nlohmann::json;

constexpr std::array kStyles = {"gpt2-style",  "llama3-style", "llama2-style", "mistral-style",
                                "gemma-style", "bert-style",   "t5-style",     "xlmr-style"};

class Mutations {
 public:
  explicit Mutations(unsigned seed) : random_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  std::string damaged(std::string bytes) {
    for (size_t n = 1 + below(4); n > 0 && !bytes.empty(); --n) {
      const size_t at = below(bytes.size());
      switch (below(4)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.erase(at, 1 + below(8));
          break;
        default:
          bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(16)));
      }
    }
    return bytes;
  }

  /// Replaces one random value of a tokenizer file by another. Small parts of the file are chosen as often as large ones.
  void mutate(json& value, int depth = 0) {
    if (value.is_structured() && !value.empty() && (depth == 0 || below(5) != 0)) {
      auto at = value.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(below(value.size())));
      if (depth > 0 && below(12) == 0) {
        value.erase(at);
      } else {
        mutate(*at, depth + 1);
      }
      return;
    }
    value = other(value);
  }

  std::string text() {
    static const std::array<std::string, 14> kParts = {
        "the ",    "\n",  "世界", "\xFF",   "\xE4\xB8",           " ",          "<|endoftext|>", "</s>",
        "e\u0301", "Abc", "12",   "\u2581", std::string(1, '\0'), "👩‍👧"};
    std::string made;
    for (size_t n = below(12); n > 0; --n)
      made += below(3) == 0 ? std::string(1, static_cast<char>(below(256))) : kParts[below(kParts.size())];
    return made;
  }

 private:
  json other(const json& value) {
    static const std::vector<json> kValues = {nullptr,
                                              true,
                                              false,
                                              0,
                                              1,
                                              -1,
                                              3,
                                              599,
                                              600,
                                              4294967295u,
                                              1ULL << 63,
                                              1e308,
                                              -0.5,
                                              "",
                                              "a",
                                              " ",
                                              "\u2581",
                                              "<unk>",
                                              "<0x41>",
                                              ".",
                                              "(a|b)*",
                                              "[^x]",
                                              "\\s+",
                                              json::array(),
                                              json::object(),
                                              json::array({"a", "b"}),
                                              {{"type", "Lowercase"}},
                                              {{"type", "ByteLevel"}},
                                              {{"type", "ByteFallback"}},
                                              {{"type", "Fuse"}},
                                              {{"type", "NFKD"}},
                                              {{"type", "Prepend"}, {"prepend", "xy"}},
                                              {{"type", "Metaspace"}, {"replacement", "a"}},
                                              {{"type", "Strip"}, {"content", "t"}, {"start", 3}, {"stop", 2}},
                                              {{"type", "Digits"}},
                                              {{"type", "Whitespace"}},
                                              {{"type", "WordPiece"}, {"prefix", ""}},
                                              {{"type", "BPEDecoder"}, {"suffix", "e"}},
                                              {{"String", "e"}},
                                              {{"Regex", "e*"}}};
    if (value.is_string() && below(2) == 0) return json(replace_broken_utf8(damaged(value.get<std::string>())));
    return kValues[below(kValues.size())];
  }
  std::mt19937 random_;
};

void use(const Tokenizer& tokenizer, Mutations& mutations) {
  const std::string text = mutations.text();
  const Encoded encoded = tokenizer.encode_with_ranges(text, true);
  ASSERT_EQ(encoded.ids.size(), encoded.ranges.size());
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    ASSERT_GE(encoded.ids[i], 0);
    ASSERT_LT(encoded.ids[i], tokenizer.vocabulary());
    ASSERT_LE(encoded.ranges[i].begin, encoded.ranges[i].end);
    ASSERT_LE(encoded.ranges[i].end, static_cast<i64>(text.size()));
    ASSERT_GE(encoded.ranges[i].begin, 0);
  }
  EXPECT_EQ(tokenizer.encode(text, true), encoded.ids);
  const auto stream = tokenizer.stream_decoder();
  std::string joined;
  for (const i32 id : encoded.ids) joined += stream->put(id);
  joined += stream->finish();
  EXPECT_EQ(joined, tokenizer.decode(encoded.ids));
  EXPECT_TRUE(is_utf8(joined));
}

/// Tries `count` changed versions of each tokenizer file, and returns how many of them loaded.
int try_files(unsigned seed, int count) {
  Mutations mutations(seed);
  int loaded = 0;
  for (const char* style : kStyles) {
    const std::string bytes = test::bytes_of(test::data("tokenizer") / style / "tokenizer.json");
    json whole = json::parse(bytes);
    for (int i = 0; i < count; ++i) {
      json file;
      if (i % 8 == 0) {
        file = json::parse(mutations.damaged(bytes), nullptr, false);
        if (file.is_discarded()) continue;
      } else {
        file = whole;
        for (size_t n = 1 + mutations.below(2); n > 0; --n) mutations.mutate(file);
      }
      try {
        const auto tokenizer = test::made_of(file);
        ++loaded;
        use(*tokenizer, mutations);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::data) << e.what();
      }
    }
  }
  return loaded;
}

TEST(HostileTokenizerFiles, LoadOrAreErrors) { EXPECT_GT(try_files(1, 400), 300); }
TEST(SoakHostileTokenizerFiles, LoadOrAreErrors) {
  for (unsigned seed = 2; seed < 40; ++seed) try_files(seed, 1000);
}

void try_texts(unsigned seed, int count) {
  Mutations mutations(seed);
  for (const char* style : kStyles) {
    const auto tokenizer = read_tokenizer(test::data("tokenizer") / style);
    for (int i = 0; i < count; ++i) use(*tokenizer, mutations);
  }
}

TEST(HostileTexts, GiveIdsAndText) { try_texts(1, 300); }
TEST(SoakHostileTexts, GiveIdsAndText) {
  for (unsigned seed = 2; seed < 30; ++seed) try_texts(seed, 10000);
}

}  // namespace
}  // namespace spillway::data::hostile_test
