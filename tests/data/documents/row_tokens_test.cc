// Tests the token ids of rows with each tokenizer against transformers' tokenizer(text), with the masks of
// tests/peers/row_fixtures.py. Also tests rows that were packed before, and what a chat template reads beside a conversation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/documents/document_rows.h"
#include "data/documents/prepare.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::data::row_tokens_test {
namespace {

using Json = nlohmann::ordered_json;
using test::bytes_of;
using test::error_of;
using test::put;
using test::TemporaryFolder;
using ::testing::HasSubstr;

DocumentMaker maker_of(std::shared_ptr<const Tokenizer> tokenizer, std::optional<i32> end, std::optional<ChatTemplate> chat = {},
                       LossOn loss_on = LossOn::by_layout) {
  DocumentOptions options;
  options.end_token = end, options.loss_on = loss_on;
  return {std::move(tokenizer), std::move(chat), std::make_shared<const Json>(Json::object()), options};
}

std::string mask_text(const std::vector<u8>& mask) {
  std::string text;
  for (const u8 bit : mask) text += bit ? '1' : '0';
  return text;
}

// Drops the first token's bit of a loss mask, since the first token of a document is never a target.
std::string behind_first(const std::string& mask) { return mask.empty() ? mask : mask.substr(1); }

TEST(RowTokens, AreThoseOfTransformersForEveryTokenizer) {
  const Json all = Json::parse(bytes_of(test::data("rows/fixtures/tokenized.json")));
  int rows = 0;
  for (const auto& [style, one] : all.items()) {
    const std::shared_ptr<const Tokenizer> tokenizer = read_tokenizer(test::data("tokenizer/" + style + "/tokenizer.json"));
    const auto end = one["end_token"].is_null() ? std::nullopt : std::optional(one["end_token"].get<i32>());
    const DocumentMaker maker = maker_of(tokenizer, end);
    for (const Json& row : one["rows"]) {
      const Document document = maker.make(row["row"].dump(), style, 1);
      EXPECT_EQ(document.ids, row["ids"].get<std::vector<i32>>()) << style << " " << row["row"];
      EXPECT_EQ(behind_first(mask_text(document.counted)), behind_first(row["mask"])) << style << " " << row["row"];
      ++rows;
    }
  }
  EXPECT_EQ(rows, 9 * 24);
}

// A file is tokenized as one text, however it is split for reading: the tokens that begin and end a text occur once.
TEST(RowTokens, OfAFileOfTextAreThoseOfOneText) {
  const Json all = Json::parse(bytes_of(test::data("rows/fixtures/tokenized.json")));
  for (const auto& [style, one] : all.items()) {
    const std::shared_ptr<const Tokenizer> tokenizer = read_tokenizer(test::data("tokenizer/" + style + "/tokenizer.json"));
    const auto end = one["end_token"].is_null() ? std::nullopt : std::optional(one["end_token"].get<i32>());
    for (const Json& row : one["rows"]) {
      if (!row["row"].contains("text")) continue;
      const TemporaryFolder folder;
      std::vector<i32> ids;
      PreparationOptions options;
      tokenize_text(put(folder / "a.txt", row["row"]["text"].get<std::string>()), *tokenizer, end, options,
                    [&](std::span<const i32> some) { ids.insert(ids.end(), some.begin(), some.end()); });
      EXPECT_EQ(ids, row["ids"].get<std::vector<i32>>()) << style << " " << row["row"];
    }
  }
}

TEST(RowTokens, OfAPromptHaveWhatTheTokenizerPutsAroundIt) {
  const auto tokenizer = read_tokenizer(test::data("tokenizer/xlmr-style/tokenizer.json"));
  const std::vector<i32> plain = tokenizer->encode("In the beginning"), around = encode_with_around(*tokenizer, "In the beginning");
  EXPECT_EQ(around, tokenizer->encode("In the beginning", true));
  EXPECT_EQ(encode_with_around(*tokenizer, "<s>In the beginning</s>"), around) << "what is written there stands once";
  EXPECT_EQ(around.size(), plain.size() + 2);
  EXPECT_EQ(encode_with_around(ByteTokenizer(), "ab"), (std::vector<i32>{'a', 'b'}));
  // If a tokenizer puts several special tokens before a text, only those that the text lacks are added.
  const Around three{{7, 8, 9}, {4, 5}};
  const std::vector<i32> has = {8, 9, 1, 4}, none = {1};
  EXPECT_TRUE(std::ranges::equal(missing_before(three, has), std::vector<i32>{7}));
  EXPECT_TRUE(std::ranges::equal(missing_behind(three, has), std::vector<i32>{5}));
  EXPECT_EQ(missing_before(three, none).size(), 3u);
  EXPECT_EQ(missing_behind(three, {}).size(), 2u);
}

ChatTemplate plain_template(bool blocks) {
  const std::string said = blocks ? "{% generation %}{{ m.content }};{% endgeneration %}" : "{{ m.content }};";
  return {"{{ tools }}|{{ documents }}|{{ style }}|{% for m in messages %}{% if m.role == 'assistant' %}A:" + said +
              "{% else %}U:{{ m.content }};{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}",
          "plain"};
}

std::string counted_text(const Document& document) {
  std::string text;
  for (size_t i = 0; i < document.ids.size(); ++i) {
    if (document.counted[i]) text += static_cast<char>(document.ids[i]);
  }
  return text;
}

TEST(RowTokens, OfConversationsReadWhatStandsBesideThem) {
  const std::string messages = R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  for (const bool blocks : {true, false}) {
    const DocumentMaker maker = maker_of(std::make_shared<ByteTokenizer>(), {}, plain_template(blocks));
    const Document plain = maker.make("{" + messages + "}", "f", 1);
    EXPECT_EQ(ByteTokenizer().decode(plain.ids), "None|None||U:a;A:b;");
    const Document more = maker.make(
        "{" + messages + R"(, "tools": [{"type": "t"}], "documents": [1], "chat_template_kwargs": {"style": "s"}, "id": 3})", "f", 1);
    EXPECT_EQ(ByteTokenizer().decode(more.ids), "[{'type': 't'}]|[1]|s|U:a;A:b;");
    EXPECT_EQ(counted_text(more), "b;");
    EXPECT_EQ(more.unread, std::vector<std::string>{"id"});
  }
}

TEST(RowTokens, OfMessagesThatDoNotCountAreNoTargets) {
  const std::string row = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0},
      {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "weight": 1}]})";
  for (const bool blocks : {true, false}) {
    const auto tokenizer = std::make_shared<ByteTokenizer>();
    EXPECT_EQ(counted_text(maker_of(tokenizer, {}, plain_template(blocks)).make(row, "f", 1)), "d;") << blocks;
    EXPECT_THAT(counted_text(maker_of(tokenizer, {}, plain_template(blocks), LossOn::all).make(row, "f", 1)), HasSubstr("b;U:c"));
  }
  // A message whose text contains several generation blocks owns all of them: its target tokens are those of all its blocks.
  ChatTemplate parted(
      "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}.{% generation %};{% "
      "endgeneration %}{% else %}U{{ m.content }}{% endif %}{% endfor %}",
      "parted");
  EXPECT_EQ(counted_text(maker_of(std::make_shared<ByteTokenizer>(), {}, std::move(parted)).make(row, "f", 1)), "d;");
}

// A packed row is kept as several documents, whichever field marks them. The reference is tests/peers/row_losses.py.
TEST(RowTokens, ThatCamePackedAreDocumentsOfOneRow) {
  const DocumentMaker maker = maker_of(std::make_shared<ByteTokenizer>(), {});
  const TemporaryFolder folder;
  for (const char* how : {R"("position_ids": [0, 1, 2, 0, 1])", R"("seq_lengths": [3, 2])", R"("attention_mask": [1, 1, 1, 2, 2])"}) {
    const std::string lines = R"({"input_ids": [10, 11, 12, 20, 21], "id": 1, )" + std::string(how) + "}\n" +
                              R"({"input_ids": [30, 31], "id": 2, "labels": [-100, 31]})" + "\n";
    PreparationOptions options;
    options.cache = folder / "cache", options.tokenizer = "bytes";
    const auto file = prepare(put(folder / "a.jsonl", lines), maker, options);
    EXPECT_EQ(file->counts().documents, 2);
    EXPECT_EQ(file->counts().unread, (std::map<std::string, i64>{{"id", 2}}));
    EXPECT_EQ(file->inner_begins(0), std::vector<i64>{3});
    EXPECT_TRUE(file->inner_begins(1).empty());
    RowCounts counts;
    const auto rows = document_rows(*file, 6, RowPacking::off, counts);
    EXPECT_EQ(rows->rows(), 2);
    EXPECT_TRUE(rows->packed());
    EXPECT_EQ(counts.documents, 3);
    EXPECT_EQ(counts.targets, 4);
    std::vector<i32> tokens(6), targets(6), positions(6);
    const RowTokens first = rows->read(0, tokens, targets, positions);
    EXPECT_EQ(first.tokens, 5);
    EXPECT_EQ(first.counted, 3);
    EXPECT_EQ(tokens, (std::vector<i32>{10, 11, 12, 20, 21, 0}));
    EXPECT_EQ(targets, (std::vector<i32>{11, 12, kIgnoredTarget, 21, kIgnoredTarget, kPaddingTarget}));
    EXPECT_EQ(positions, (std::vector<i32>{0, 1, 2, 0, 1, 0}));
    const auto cut = document_rows(*file, 3, RowPacking::best_fit, counts = {});
    EXPECT_EQ(counts.documents, 2) << "the second document of the row is cut away";
    EXPECT_EQ(counts.targets, 3);
  }
  // Even with --loss-on all, the first token of a document does not contribute to the loss.
  const Document all = maker_of(std::make_shared<ByteTokenizer>(), {}, {}, LossOn::all)
                           .make(R"({"input_ids": [1, 2, 3, 4], "seq_lengths": [2, 2], "labels": [-100, -100, -100, 4]})", "f", 1);
  EXPECT_EQ(mask_text(all.counted), "1101");
}

TEST(RowTokens, OfManyUnreadKeysTheFirstAreNamed) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += R"({"text": "ab", "k)" + std::to_string(i) + "\": 1}\n";
  PreparationOptions options;
  options.cache = folder / "cache", options.tokenizer = "bytes";
  const auto counts = prepare(put(folder / "a.jsonl", lines), maker_of(std::make_shared<ByteTokenizer>(), {}), options)->counts();
  EXPECT_EQ(counts.unread.size(), 33u);
  EXPECT_EQ(counts.unread.at(kOtherKeys), 8);
}

TEST(RowTokens, ThatLoseAllTargetsSayWhichLengthWouldKeepOne) {
  const TemporaryFolder folder;
  const std::string lines = "{\"prompt\": \"" + std::string(50, 'p') + "\", \"completion\": \"c\"}\n{\"prompt\": \"" +
                            std::string(40, 'p') + "\", \"completion\": \"c\"}\n";
  PreparationOptions options;
  options.cache = folder / "cache", options.tokenizer = "bytes";
  const auto file = prepare(put(folder / "a.jsonl", lines), maker_of(std::make_shared<ByteTokenizer>(), {}), options);
  RowCounts counts;
  EXPECT_THAT(document_rows(*file, 32, RowPacking::best_fit, counts)->why_none(),
              testing::AllOf(HasSubstr("the prompts of all 2 rows of"), HasSubstr("fill --sequence-length 32"), HasSubstr("at least 41,")));
  EXPECT_EQ(document_rows(*file, 41, RowPacking::best_fit, counts = {})->rows(), 1);
}

}  // namespace
}  // namespace spillway::data::row_tokens_test
