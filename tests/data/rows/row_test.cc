// Lines of fine-tuning data against their fixtures, every complaint in its words, and lines of all kinds of rubbish.
#include "data/rows/row.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "data/rows/json_place.h"
#include "tests/support/fixtures.h"

namespace spillway::data::row_test {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& name) {
  std::ifstream in(spillway::test::data("rows/fixtures/" + name), std::ios::binary);
  EXPECT_TRUE(in) << name;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Json expected() {
  std::ifstream in(spillway::test::data("rows/fixtures/expected.json"));
  return Json::parse(in);
}

std::string error_of(const std::string& line, std::optional<RowLayout> layout = {}) {
  try {
    parse_row(line, layout, "a.jsonl", 7);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    return error.what();
  }
  ADD_FAILURE() << "no error for " << line;
  return "";
}

TEST(Row, FixturesBecomeWhatTheyShould) {
  const Json all = expected();
  int rows = 0;
  for (const Json& tested : all["cases"]) {
    const std::string file = tested["file"];
    const auto number = tested["line"].get<size_t>();
    SCOPED_TRACE(file + " " + std::to_string(number));
    const std::string line = lines_of(file).at(number - 1);
    std::string layout = file.substr(0, file.find('.'));
    if (layout == "prompt_completion") layout = "completion";
    const Row row = parse_row(line, {}, file, 1), named = parse_row(line, row_layout(layout), file, 1);
    ++rows;
    EXPECT_EQ(row.layout, row_layout(layout));
    EXPECT_EQ(row.layout, named.layout);
    if (tested.contains("prompt")) {
      EXPECT_EQ(row.prompt, tested["prompt"].get<std::string>());
      EXPECT_EQ(row.completion, tested["completion"].get<std::string>());
    } else if (tested.contains("messages")) {
      ASSERT_TRUE(row.messages);
      EXPECT_EQ(*row.messages, tested["messages"]);
    } else {
      EXPECT_EQ(row.text, Json::parse(line)["text"].get<std::string>());
    }
  }
  EXPECT_EQ(rows, 21);
}

TEST(Row, EveryBadLineIsRefused) {
  const auto lines = lines_of("bad.jsonl");
  ASSERT_EQ(lines.size(), expected()["bad"].size());
  for (const std::string& line : lines) EXPECT_THAT(error_of(line), HasSubstr("[data] a.jsonl, line 7, column ")) << line;
}

TEST(Row, ComplaintsNamePlaceAndWords) {
  const std::pair<const char*, const char*> kWords[] = {
      {R"(["text"])", "column 1: expected an object, got a list"},
      {R"({"txt": "x"})",
       "column 1: expected a key of a known layout (text, prompt, messages, instruction, conversations, input_ids), got none"},
      {R"({"a": [1, {"text": 3}], "text": 5})", "column 33: expected a text as `text`, got a number"},
      {R"({"prompt": "x"})", "column 1: expected a text as `completion`, got none"},
      {R"({"messages": []})", "column 14: expected at least one item in `messages`, got none"},
      {R"({"messages": "x"})", "column 14: expected a list as `messages`, got a text"},
      {R"({"messages": [{"role": "user", "content": "a"}, 5]})", "column 49: expected an object as item 2 of `messages`, got a number"},
      {R"({"messages": [{"role": "user"}]})", "column 15: expected a text or a list as `content`, got none"},
      {R"({"messages": [{"content": "x", "role": 3}]})", "column 40: expected a text as `role`, got a number"},
      {R"({"conversations": [{"from": "alien", "value": "x"}]})", "column 29: expected human, user, gpt"},
      {R"({"instruction": "x", "output": null})", "column 32: expected a text as `output`, got null"},
      {R"({"instruction": "x", "input": 1, "output": "y"})", "column 31: expected a text as `input`, got a number"},
      {R"({"text": "a", "messages": []})", "column 27: expected the keys of one layout, got `text` and `messages`: name the layout"},
      {R"({"text": "a"} {"text": "b"})", "column 15: expected one JSON object, got an error ("},
      {R"({"text": "\ud800"})", "expected one JSON object, got an error ("},
      {"{\"text\": \"\xff\"}", "column 11: expected one JSON object"},
      {"", "column 1: expected one JSON object"}};
  for (const auto& [line, words] : kWords) EXPECT_THAT(error_of(line), HasSubstr(words)) << line;
  EXPECT_THAT(error_of(R"({"text": "a"})", RowLayout::completion), HasSubstr("column 1: expected a text as `prompt`, got none"));
  EXPECT_THAT(error_of(std::string(1000, '[')), HasSubstr("at most 200 deep"));
  EXPECT_EQ(row_layout("parquet"), std::nullopt);
}

TEST(Row, TokensAreTakenAsTheyAre) {
  const auto of = [](const char* line) { return parse_row(line, {}, "a", 1); };
  const Row plain = of(R"({"input_ids": [5, 0, 2147483647]})");
  EXPECT_EQ(plain.layout, RowLayout::tokens);
  EXPECT_EQ(plain.ids, (std::vector<i32>{5, 0, 2147483647}));
  EXPECT_EQ(plain.counted, (std::vector<u8>{1, 1, 1}));
  const Row labelled = of(R"({"labels": [-100, -100, 7, 8], "input_ids": [5, 6, 7, 8], "attention_mask": null, "id": "x"})");
  EXPECT_EQ(labelled.counted, (std::vector<u8>{0, 0, 1, 1}));
  const Row padded =
      of(R"({"input_ids": [0, 0, 5, 6, 7, 0], "labels": [-100, -100, -100, 6, 7, -100], "attention_mask": [0, 0, 1, 1, 1, 0]})");
  EXPECT_EQ(padded.ids, (std::vector<i32>{5, 6, 7}));
  EXPECT_EQ(padded.counted, (std::vector<u8>{0, 1, 1}));

  const std::pair<const char*, const char*> kWords[] = {
      {R"({"input_ids": 5})", "column 15: expected a list of tokens as `input_ids`, got a number"},
      {R"({"input_ids": []})", "column 15: expected at least one token in `input_ids`, got none"},
      {R"({"input_ids": [5], "attention_mask": [0]})", "expected at least one token"},
      {R"({"input_ids": [1, 2147483648]})", "column 19: expected whole numbers from 0 to 2147483647 in `input_ids`, got 2147483648"},
      {R"({"input_ids": [18446744073709551615]})", "got 18446744073709551615"},
      {R"({"input_ids": [-1]})", "column 16: expected whole numbers from 0 to 2147483647 in `input_ids`, got -1"},
      {R"({"input_ids": [1.0]})", "got 1.0"},
      {R"({"input_ids": [[1, 2]]})", "got [1,2]"},
      {R"({"input_ids": [1, 2], "labels": [1]})", "column 33: expected one number in `labels` for each of 2 tokens, got 1"},
      {R"({"input_ids": [1, 2], "labels": [-100, 3]})", "column 40: expected -100 or the token 2 as label, got 3"},
      {R"({"input_ids": [1, 2], "labels": [-101, 2]})", "got -101"},
      {R"({"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]})", "expected padding before or behind the tokens"},
      {R"({"input_ids": [1], "text": "a"})", "got `text` and `input_ids`: name the layout"}};
  for (const auto& [line, words] : kWords) EXPECT_THAT(error_of(line), HasSubstr(words)) << line;
  EXPECT_EQ(parse_row(R"({"input_ids": [1], "text": "a"})", RowLayout::tokens, "a", 1).ids.size(), 1U);
}

TEST(Row, MessagesMayCallTools) {
  const Row row = parse_row(
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls": []}, {"role": "user", "content": [{"type": "text"}]}]})", {},
      "a", 1);
  EXPECT_EQ(row.messages->size(), 2u);
}

TEST(Row, RubbishIsRefusedOrRead) {
  std::mt19937_64 random(5);
  std::vector<std::string> seeds;
  for (const char* name : {"text", "prompt_completion", "messages", "alpaca", "sharegpt", "bad"}) {
    for (std::string& line : lines_of(std::string(name) + ".jsonl")) seeds.push_back(std::move(line));
  }
  seeds.push_back(R"({"input_ids": [0, 5, 6, 7], "labels": [-100, -100, 6, 7], "attention_mask": [0, 1, 1, 1]})");
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string line = seeds[random() % seeds.size()];
    for (u64 changes = 1 + random() % 3; changes > 0 && !line.empty(); --changes) {
      const size_t at = random() % line.size();
      if (random() % 2)
        line.erase(at, 1 + random() % 4);
      else
        line.insert(at, 1, "{}[]\",:\\x1 \xc3"[random() % 12]);
    }
    json_place(line, {"messages", size_t{1}, "content"});
    try {
      parse_row(line, {}, "a", 1);
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << line;
    }
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace spillway::data::row_test
