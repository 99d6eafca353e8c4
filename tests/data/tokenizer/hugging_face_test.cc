// Compares tokenizers with the results of Hugging Face's tokenizers for the same files and texts.
#include "data/tokenizer/hugging_face/hugging_face.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"
#include "tests/support/temporary_folder.h"

namespace spillway::data::hugging_face_test {
namespace {

using nlohmann::json;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::filesystem::path folder_of(const std::string& style) { return test::data("tokenizer") / style; }
json expected_of(const std::string& style) { return json::parse(test::bytes_of(folder_of(style) / "expected.json")); }

class Style : public ::testing::TestWithParam<const char*> {};

TEST_P(Style, GivesHuggingFacesIdsAndTexts) {
  const auto tokenizer = read_tokenizer(folder_of(GetParam()));
  const json expected = expected_of(GetParam());
  EXPECT_EQ(tokenizer->vocabulary(), expected["vocab_size_with_added"].get<i64>());
  ASSERT_GT(expected["cases"].size(), 20u);
  for (const json& wanted : expected["cases"]) {
    const std::string text = from_hex(wanted["utf8_hex"]);
    const auto ids = wanted["ids"].get<std::vector<i32>>();
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->encode(text, true), wanted["ids_with_special"].get<std::vector<i32>>()) << text;
    EXPECT_EQ(tokenizer->encode_with_ranges(text).ids, ids) << text;
    const auto with_special = wanted["ids_with_special"].get<std::vector<i32>>();
    EXPECT_EQ(tokenizer->decode(ids), wanted["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->decode(ids, true), wanted["decoded_skip_special"].get<std::string>());
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string token = wanted["tokens"][i];
      if (tokenizer->id_of(token)) {  // in Unigram, text without tokens is shown as it is written
        EXPECT_EQ(tokenizer->token(ids[i]), token);
        EXPECT_EQ(tokenizer->id_of(token), ids[i]);
      }
    }
  }
}

TEST_P(Style, StreamsWhatItDecodes) {
  const auto tokenizer = read_tokenizer(folder_of(GetParam()));
  const json expected = expected_of(GetParam());
  for (const json& wanted : expected["cases"]) {
    for (const bool skip : {false, true}) {
      const auto ids = tokenizer->encode(from_hex(wanted["utf8_hex"]), true);
      const auto stream = tokenizer->stream_decoder(skip);
      std::string joined;
      for (const i32 id : ids) {
        const std::string piece = stream->put(id);
        EXPECT_TRUE(is_utf8(piece)) << "not whole characters";
        joined += piece;
      }
      joined += stream->finish();
      EXPECT_EQ(joined, tokenizer->decode(ids, skip));
    }
  }
}

TEST_P(Style, RangesAreInOrderAndLieInTheText) {
  const auto tokenizer = read_tokenizer(folder_of(GetParam()));
  const json expected = expected_of(GetParam());
  for (const json& wanted : expected["cases"]) {
    const std::string text = from_hex(wanted["utf8_hex"]);
    const Encoded encoded = tokenizer->encode_with_ranges(text, true);
    ASSERT_EQ(encoded.ids.size(), encoded.ranges.size());
    i64 last = 0;
    for (const ByteRange& range : encoded.ranges) {
      EXPECT_LE(last, range.begin);
      EXPECT_LE(range.begin, range.end);
      EXPECT_LE(range.end, static_cast<i64>(text.size()));
      last = range.begin;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Style,
                         ::testing::Values("gpt2-style", "llama3-style", "llama2-style", "mistral-style", "gemma-style", "bert-style",
                                           "t5-style", "xlmr-style"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace spillway::data::hugging_face_test
