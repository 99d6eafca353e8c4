// Tests the parsing of fine-tuning data: lines are compared with their fixtures,
// every error message is checked, and damaged lines of all kinds are tried.
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
       "column 1: expected a key of a known layout (text, prompt, messages, instruction, conversations, input_ids), got txt"},
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
      {R"({"text": "a", "messages": []})", "column 27: expected the keys of one layout only, got `text` and `messages`"},
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
      {R"({"input_ids": 5})", "column 15: expected a list of numbers as `input_ids`, got a number"},
      {R"({"input_ids": []})", "column 15: expected at least one token in `input_ids`, got none"},
      {R"({"input_ids": [5], "attention_mask": [0]})", "expected at least one token"},
      {R"({"input_ids": [1, 2147483648]})", "column 19: expected whole numbers from 0 to 2147483647 in `input_ids`, got 2147483648"},
      {R"({"input_ids": [18446744073709551615]})", "got 18446744073709551615"},
      {R"({"input_ids": [-1]})", "column 16: expected whole numbers from 0 to 2147483647 in `input_ids`, got -1"},
      {R"({"input_ids": [1.0]})", "got 1.0"},
      {R"({"input_ids": [[1, 2]]})", "got [1,2]"},
      {R"({"input_ids": [1, 2], "labels": [1]})", "column 33: expected one number in `labels` for each of 2 tokens, got 1"},
      {R"({"input_ids": [1, 2], "labels": [-100, 3]})", "column 40: expected the label -100 or the token 2 itself, got 3"},
      {R"({"input_ids": [1, 2], "labels": [-101, 2]})", "got -101"},
      {R"({"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]})", "expected padding only"},
      {R"({"input_ids": [1], "text": "a"})", "got `text` and `input_ids`: name the layout with --data-format"}};
  for (const auto& [line, words] : kWords) EXPECT_THAT(error_of(line), HasSubstr(words)) << line;
  EXPECT_EQ(parse_row(R"({"input_ids": [1], "text": "a"})", RowLayout::tokens, "a", 1).ids.size(), 1U);
}

TEST(Row, MessagesMayCallTools) {
  const Row row = parse_row(
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls": []}, {"role": "user", "content": [{"type": "text"}]}]})", {},
      "a", 1);
  EXPECT_EQ(row.messages->size(), 2u);
}

TEST(Row, TokensThatCamePackedAreDocuments) {
  const auto of = [](const std::string& keys) { return parse_row(R"({"input_ids": [5, 6, 7, 8, 9], )" + keys + "}", {}, "a", 1); };
  const std::vector<u32> two = {3};
  EXPECT_EQ(of(R"("position_ids": [0, 1, 2, 0, 1])").begins, two);
  EXPECT_EQ(of(R"("seq_lengths": [3, 2])").begins, two);
  EXPECT_EQ(of(R"("attention_mask": [1, 1, 1, 2, 2])").begins, two);
  EXPECT_EQ(of(R"("attention_mask": [1, 1, 1, 2, 2], "position_ids": [0, 1, 2, 0, 1], "seq_lengths": [3, 2])").begins, two);
  EXPECT_EQ(of(R"("attention_mask": [1, 1, 1, 1, 1], "position_ids": [0, 1, 2, 0, 1])").begins, two);
  EXPECT_EQ(of(R"("position_ids": [0, 1, 0, 1, 0])").begins, (std::vector<u32>{2, 4}));
  // Zeros in the attention mask mark padding at the beginning or the end of a row. The padding is removed.
  const Row padded = of(R"("attention_mask": [0, 1, 1, 2, 0], "position_ids": [1, 0, 1, 0, 0], "seq_lengths": [2, 1])");
  EXPECT_EQ(padded.ids, (std::vector<i32>{6, 7, 8}));
  EXPECT_EQ(padded.begins, (std::vector<u32>{2}));
  EXPECT_TRUE(of(R"("position_ids": [0, 1, 2, 3, 4], "seq_lengths": [5], "attention_mask": [1, 1, 1, 1, 1])").begins.empty());
  // Without labels, a token contributes to the loss if all masks of TRL that are present say so, as in TRL.
  EXPECT_EQ(of(R"("completion_mask": [0, 0, 1, 1, 1])").counted, (std::vector<u8>{0, 0, 1, 1, 1}));
  EXPECT_EQ(of(R"("completion_mask": [0, 0, 1, 1, 1], "assistant_masks": [1, 1, 0, true, false])").counted,
            (std::vector<u8>{0, 0, 0, 1, 0}));
  EXPECT_EQ(of(R"("labels": [5, 6, 7, 8, 9], "completion_mask": [0, 0, 1, 1, 1])").counted, (std::vector<u8>{1, 1, 1, 1, 1}));
  EXPECT_TRUE(of(R"("token_type_ids": [0, 0, 0, 0, 0])").unread.empty());

  const std::pair<const char*, const char*> kWords[] = {
      {R"("attention_mask": [1, 1, 1, 3, 3])", "in `attention_mask`, got 3 after 1"},
      {R"("attention_mask": [2, 2, 2, 1, 1])", "in `attention_mask`, got 2 after 0"},
      {R"("attention_mask": [1, 1, 2, 2, 1])", "in `attention_mask`, got 1 after 2"},
      {R"("position_ids": [0, 1, 2, 4, 5])", "got 4 where 3 or 0 was expected"},
      {R"("position_ids": [3, 4, 5, 6, 7])", "got 3 where 0 or 0 was expected"},
      {R"("position_ids": [0, 0, 1])", "expected one number in `position_ids` for each of 5 tokens, got 3"},
      {R"("seq_lengths": [3, 1])", "expected lengths in `seq_lengths` that add up to the row's 5 tokens, got 4"},
      {R"("seq_lengths": [3, 4])", "got 7 or more"},
      {R"("seq_lengths": [5, 0])", "expected whole numbers from 1"},
      {R"("seq_lengths": [3, 2], "position_ids": [0, 1, 2, 3, 4])",
       "expected `seq_lengths` to begin documents at the same tokens as `position_ids`"},
      {R"("seq_lengths": [2, 3], "attention_mask": [1, 1, 1, 2, 2])", "at the same tokens as `attention_mask`"},
      {R"("completion_mask": [0, 0, 2, 1, 1])", "expected 0 or 1 in `completion_mask`, got 2"},
      {R"("token_type_ids": [0, 0, 0, 0, 1])", "expected 0 in `token_type_ids`"}};
  for (const auto& [keys, words] : kWords)
    EXPECT_THAT(error_of(R"({"input_ids": [5, 6, 7, 8, 9], )" + std::string(keys) + "}"), HasSubstr(words)) << keys;
}

TEST(Row, KeysThatNobodyReadsAreNamed) {
  const auto unread = [](const char* line) { return parse_row(line, {}, "a", 1).unread; };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(unread(R"({"text": "x", "meta": {"a": 1}, "id": 7, "none": null})"), (Keys{"meta", "id"}));
  EXPECT_EQ(unread(R"({"input_ids": [1], "special_tokens_mask": [0], "labels": [1]})"), (Keys{"special_tokens_mask"}));
  EXPECT_EQ(unread(R"({"prompt": "x", "completion": "y", "rejected": "z"})"), (Keys{"rejected"}));
  EXPECT_EQ(unread(R"({"instruction": "x", "input": "", "output": "y", "system": "", "history": []})"), Keys());
  EXPECT_EQ(unread(R"({"messages": [{"role": "user", "content": "x", "name": "n"}], "tools": null, "system": "s"})"), (Keys{"system"}));
  EXPECT_EQ(unread(R"({"conversations": [{"from": "human", "value": "x", "mark": 1}, {"from": "gpt", "value": "y", "mark": 2}]})"),
            (Keys{"conversations[].mark"}));
}

Row row_of(const std::string& line) { return parse_row(line, {}, "a", 1); }

TEST(Row, ConversationsHaveVariablesBesideThem) {
  const std::string messages = R"({"messages": [{"role": "user", "content": "x"}], )";
  const Json list = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  EXPECT_EQ(*row_of(messages + R"("tools": )" + list.dump() + "}").variables, Json({{"tools", list}}));
  EXPECT_EQ(*row_of(messages + R"("tools": )" + Json(list.dump()).dump() + "}").variables, Json({{"tools", list}})) << "as a JSON text";
  EXPECT_EQ(row_of(messages + R"("tools": "", "documents": null, "chat_template_kwargs": {}})").variables, nullptr);
  EXPECT_EQ(*row_of(messages +
                    R"("documents": [{"title": "t"}], "chat_template_kwargs": {"enable_thinking": false, "tools": null}, "tools": []})")
                 .variables,
            Json::parse(R"({"tools": null, "documents": [{"title": "t"}], "enable_thinking": false})"))
      << "the row's own variables come last, as in TRL";
  EXPECT_EQ(with_variables(Json{{"bos_token", "<s>"}, {"tools", 1}}, row_of(messages + R"("tools": []})")),
            Json::parse(R"({"bos_token": "<s>", "tools": []})"));
  const std::pair<const char*, const char*> kWords[] = {
      {R"("tools": "[")", "expected `tools` to be a list"},
      {R"("tools": {"a": 1})", "expected a list as `tools`, got an object"},
      {R"("tools": ["f"])", "expected objects in `tools`, got a text"},
      {R"("documents": "d")", "expected a list as `documents`, got a text"},
      {R"("chat_template_kwargs": [1])", "expected an object as `chat_template_kwargs`, got a list"},
      {R"("chat_template_kwargs": {"add_generation_prompt": true})", "got `add_generation_prompt`, which is not one"}};
  for (const auto& [keys, words] : kWords) EXPECT_THAT(error_of(messages + keys + "}"), HasSubstr(words)) << keys;
}

TEST(Row, ShareGptHasSystemToolsAndCalls) {
  const std::string said =
      R"("conversations": [{"from": "human", "value": "x"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"},
      {"from": "observation", "value": "2"}, {"from": "gpt", "value": "y"}])";
  const Row row = row_of("{" + said + R"(, "system": "Be brief.", "tools": "[{\"name\": \"f\", \"parameters\": {}}]"})");
  EXPECT_EQ(*row.messages, Json::parse(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"},
      {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]},
      {"role": "tool", "content": "2"}, {"role": "assistant", "content": "y"}])"));
  EXPECT_EQ(*row.variables, Json::parse(R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]})"));
  EXPECT_EQ(
      row_of(R"({"conversations": [{"from": "system", "value": "s"}, {"from": "gpt", "value": "y"}], "system": "t"})").messages->size(), 2u)
      << "a conversation's own comes first";
  EXPECT_THAT(error_of(R"({"conversations": [{"from": "function_call", "value": "f 1"
}]
})"),
              HasSubstr(R"(expected {"name", "arguments"})"));
  EXPECT_THAT(error_of("{" + said + R"(, "system": 5})"), HasSubstr("expected a text as `system`, got a number"));
}

TEST(Row, MessagesMayNotCount) {
  const auto left_out = [](const std::string& items) { return row_of(R"({"messages": [)" + items + "]}").left_out; };
  const std::string asked = R"({"role": "user", "content": "x"}, )";
  EXPECT_EQ(left_out(asked + R"({"role": "assistant", "content": "y", "weight": 0}, {"role": "assistant", "content": "z", "weight": 1})"),
            (std::vector<u8>{0, 1, 0}));
  EXPECT_EQ(
      left_out(asked + R"({"role": "assistant", "content": "y", "train": false}, {"role": "assistant", "content": "z", "train": true})"),
      (std::vector<u8>{0, 1, 0}));
  EXPECT_TRUE(left_out(asked + R"({"role": "assistant", "content": "y", "weight": 1.0, "train": null})").empty());
  const Row shared =
      row_of(R"({"system": "s", "conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y", "weight": 0}]})");
  EXPECT_EQ(shared.left_out, (std::vector<u8>{0, 0, 1}));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "assistant", "content": "y", "weight": 0.5}]})"),
              HasSubstr("expected 0 or 1 as `weight` of a message, got 0.5"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "y", "train": true}]})"), HasSubstr("`train: true`"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "assistant", "content": "y", "train": 1}]})"), HasSubstr("true or false as `train`"));
}

TEST(Row, AlpacaHasSystemAndHistory) {
  const Row row =
      row_of(R"({"instruction": "c", "input": "d", "output": "e", "system": "Be brief.", "history": [["a", "b"], ["f", "g"]]})");
  ASSERT_EQ(row.history.size(), 2u);
  EXPECT_EQ(row.history[0].prompt, "Be brief.\n\n### Instruction:\na\n\n### Response:\n");
  EXPECT_EQ(row.history[0].completion, "b");
  EXPECT_EQ(row.history[1].prompt, "\n\n### Instruction:\nf\n\n### Response:\n");
  EXPECT_EQ(row.prompt, "\n\n### Instruction:\nc\n\n### Input:\nd\n\n### Response:\n");
  EXPECT_EQ(row.completion, "e");
  EXPECT_THAT(error_of(R"({"instruction": "c", "output": "e", "history": [["a"]]})"),
              HasSubstr("expected two texts, a question and its answer, as item 1 of `history`, got a list"));
  EXPECT_THAT(error_of(R"({"instruction": "c", "output": "e", "history": "a"})"), HasSubstr("expected a list of pairs as `history`"));
}

TEST(Row, RubbishIsRefusedOrRead) {
  std::mt19937_64 random(5);
  std::vector<std::string> seeds;
  for (const char* name : {"text", "prompt_completion", "messages", "alpaca", "sharegpt", "bad"}) {
    for (std::string& line : lines_of(std::string(name) + ".jsonl")) seeds.push_back(std::move(line));
  }
  seeds.push_back(R"({"input_ids": [0, 5, 6, 7], "labels": [-100, -100, 6, 7], "attention_mask": [0, 1, 1, 1]})");
  seeds.push_back(R"({"input_ids": [5, 6, 7], "position_ids": [0, 1, 0], "seq_lengths": [2, 1], "completion_mask": [0, 1, 1]})");
  seeds.push_back(R"({"conversations": [{"from": "function_call", "value": "{}", "weight": 0}], "tools": "[{}]", "system": "s"})");
  seeds.push_back(R"({"instruction": "a", "output": "b", "system": "c", "history": [["d", "e"]]})");
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
