// Tests every tokenizer step that inspects characters, over all code points of the planes that
// have letters, against the results of Hugging Face's tokenizers (tests/peers/unicode_tables.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "data/text/unicode.h"
#include "data/tokenizer/stages/normalizer.h"
#include "data/tokenizer/stages/pre_tokenizer.h"
#include "tests/support/fixtures.h"

namespace spillway::data::unicode_test {
namespace {

using nlohmann::json;

const std::string kFile = "tokenizer.json";
constexpr size_t kBlock = 0x4000;  // the number of code points that share a checksum

const json& expected() {
  static const json all = json::parse(std::ifstream(test::data("tokenizer/unicode.json")));
  return all;
}

std::vector<char32_t> codes() {
  std::vector<char32_t> all;
  for (const json& range : expected()["codes"]) {
    for (char32_t c = range[0].get<u32>(); c <= range[1].get<u32>(); ++c) {
      if (c < 0xD800 || c > 0xDFFF) all.push_back(c);
    }
  }
  return all;
}

std::string utf8(char32_t code) {
  std::string text;
  append_code(text, code);
  return text;
}

std::string checksum(std::string_view bytes) {
  u64 h = 0xCBF29CE484222325;
  for (const char byte : bytes) h = (h ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  std::array<char, 17> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx", static_cast<unsigned long long>(h));
  return hex.data();
}

// Returns one checksum per block of code points. `made` returns the bytes to be summed for a block.
template <class Made>
json checksums(const Made& made) {
  const std::vector<char32_t> all = codes();
  json sums = json::array();
  for (size_t begin = 0; begin < all.size(); begin += kBlock)
    sums.push_back(checksum(made(std::span(all).subspan(begin, std::min(kBlock, all.size() - begin)))));
  return sums;
}

json normalizer_of(const std::string& name) {
  if (name == "Precompiled") return {{"type", name}, {"precompiled_charsmap", expected()["map"]}};
  if (!name.starts_with("BertNormalizer ")) return {{"type", name}};
  json bert = {
      {"type", "BertNormalizer"}, {"clean_text", false}, {"handle_chinese_chars", false}, {"strip_accents", false}, {"lowercase", false}};
  bert[name.substr(name.find(' ') + 1)] = true;
  return bert;
}

json pre_tokenizer_of(const std::string& name) {
  if (name == "Digits") return {{"type", name}, {"individual_digits", true}};
  if (name == "Punctuation") return {{"type", name}, {"behavior", "Isolated"}};
  if (!name.starts_with("Split ")) return {{"type", name}};
  return {{"type", "Split"}, {"pattern", {{"Regex", name.substr(name.find(' ') + 1)}}}, {"behavior", "Isolated"}, {"invert", false}};
}

TEST(Unicode, NormalizersAreThoseOfTokenizers) {
  for (const auto& [name, want] : expected()["normalizers"].items()) {
    const Normalizers steps = read_normalizer(normalizer_of(name), {"tokenizer.json", ""});
    const json got = checksums([&](std::span<const char32_t> block) {
      std::string text;
      for (const char32_t c : block) text += "A" + utf8(c) + "\xCC\x81" + "b";
      WorkBudget budget(kFile, text.size());
      AlignedText made{.text = text, .budget = &budget};
      normalize(steps, made);
      return made.text;
    });
    EXPECT_EQ(got, want) << name;
  }
}

TEST(Unicode, PreTokenizersAreThoseOfTokenizers) {
  for (const auto& [name, want] : expected()["pre_tokenizers"].items()) {
    const PreTokenizers steps = read_pre_tokenizer(pre_tokenizer_of(name), {"tokenizer.json", ""});
    const json got = checksums([&](std::span<const char32_t> block) {
      Pieces pieces;
      std::vector<size_t> ends;
      for (const char32_t c : block) {
        const size_t begin = pieces.text.text.size();
        pieces.text.text += "?" + utf8(c) + "b";
        ends.push_back(pieces.text.text.size());
        pieces.spans.push_back({begin, ends.back()});
      }
      WorkBudget budget(kFile, pieces.text.text.size());
      pieces.text.budget = &budget;
      for (const auto& step : steps) (*step)(pieces);
      std::string made;
      auto span = pieces.spans.begin();
      for (const size_t end : ends) {
        for (; span != pieces.spans.end() && span->begin < end; ++span)
          made += pieces.text.text.substr(span->begin, span->end - span->begin) + "\n";
        made += '\xFF';
      }
      return made;
    });
    EXPECT_EQ(got, want) << name;
  }
}

TEST(Unicode, YoungCharactersStandForOldOnesOfTheirCategory) {
  EXPECT_EQ(with_old_characters("a\u00e9\u4e16\U0001F600"), "");
  const std::string text = "x\U00010D50\U00010D70y\U00010D40";  // letters and a digit of the script Garay, which is new in Unicode 16
  const std::string old = with_old_characters(text);
  ASSERT_EQ(old.size(), text.size());
  EXPECT_EQ(old[0], 'x');
  EXPECT_EQ(old[9], 'y');
  EXPECT_EQ(old.find("\U00010D50"), std::string::npos);
}

}  // namespace
}  // namespace spillway::data::unicode_test
