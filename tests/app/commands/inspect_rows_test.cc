// Tests inspect on a file of training rows: it shows what a model would see of them, and how many rows and tokens there are.
#include "app/commands/inspect_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/app/support_app.h"
#include "tests/support/fixtures.h"

namespace spillway::app::inspect_rows_test {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

struct InspectRows : testing::Test {
  Outcome inspect(const std::string& lines, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"inspect", folder.write("a.jsonl", lines), "--data-cache", folder.path() / "cache"};
    args.insert(args.end(), more.begin(), more.end());
    return run_app(args);
  }
  Json described(const std::string& lines, std::vector<std::string> more = {}) {
    more.push_back("--json");
    const Outcome outcome = inspect(lines, more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out, nullptr, false);
  }
  TemporaryFolder folder;
};

constexpr const char* kTwo = "{\"prompt\": \"ab\", \"completion\": \"cde\"}\n{\"text\": \"xyz\"}\n";

TEST_F(InspectRows, CountsWhatTrainWouldTrainOn) {
  const Json packed = described(kTwo, {"--sequence-length", "16"});
  EXPECT_EQ(packed["tokenizer"], "bytes");
  EXPECT_EQ(packed["documents"], 2);
  EXPECT_EQ(packed["tokens"], 8);
  EXPECT_EQ(packed["counted_tokens"], 5);
  EXPECT_EQ(packed["counted_share"], 0.625);
  EXPECT_EQ(packed["rows_per_epoch"], 1);
  EXPECT_EQ(packed["padding_share"], 0.5);
  ASSERT_EQ(packed["first_rows"].size(), 1u);
  const Json& row = packed["first_rows"][0];
  EXPECT_EQ(row["tokens"], 8);
  EXPECT_EQ(row["counted"], 5);
  EXPECT_EQ(row["padding"], 8);
  const Json first = Json::parse(R"([{"text": "ab", "counted": false}, {"text": "cde", "counted": true}])");
  const Json second = Json::parse(R"([{"text": "x", "counted": false}, {"text": "yz", "counted": true}])");
  EXPECT_EQ(row["documents"], Json::array({first, second}));

  const Json apart = described(kTwo, {"--sequence-length", "4", "--packing", "off"});
  EXPECT_EQ(apart["rows_per_epoch"], 2);
  EXPECT_EQ(apart["cut_documents"], 1);
  EXPECT_EQ(apart["cut_tokens"], 1);
  EXPECT_EQ(apart["first_rows"][1]["padding"], 1);
  EXPECT_EQ(described(kTwo, {"--loss-on", "all"})["counted_tokens"], 6);
  EXPECT_EQ(described(kTwo)["sequence_length"], 1024);
  EXPECT_EQ(described(kTwo, {"--model", "gpt2-tiny", "--sequence-length", "8"})["rows_per_epoch"], 1);
}

TEST_F(InspectRows, SaysHowLongDocumentsAre) {
  std::string lines;
  for (size_t length = 1; length <= 101; ++length) lines += "{\"text\": \"" + std::string(length + 1, 'a') + "\"}\n";
  const Json about = described(lines, {"--sequence-length", "50"});
  EXPECT_EQ(about["document_tokens"], Json::parse(R"({"min": 2, "median": 52, "90_percent": 92, "max": 102})"));
  EXPECT_EQ(about["documents"], 101);
  EXPECT_EQ(about["first_rows"].size(), 3u);
  const Json none = described("\n");
  EXPECT_EQ(none["documents"], 0);
  EXPECT_EQ(none["rows_per_epoch"], 0);
  EXPECT_TRUE(none["first_rows"].empty());
}

TEST_F(InspectRows, MarksWhatCounts) {
  const Outcome outcome = inspect(kTwo, {"--sequence-length", "16"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("row 1 of 1: 2 documents, 8 tokens, 5 of them ⟦counted⟧, 8 of padding\nab⟦cde⟧\n----\nx⟦yz⟧\n"));
  EXPECT_THAT(outcome.out, HasSubstr("counted_share: 0.625\n"));
  EXPECT_THAT(outcome.out, HasSubstr("document_tokens:\n  min: 3\n"));
  std::ostringstream out, err;
  const Console colours(out, err, false, true);
  EXPECT_THAT(first_rows_text(described(kTwo), colours), HasSubstr("ab\033[32mcde\033[0m"));
}

TEST_F(InspectRows, OfConversationsGoThroughTheTemplate) {
  const std::string line = R"({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Noah."}]})"
                           "\n";
  const std::vector<std::string> flags = {"--tokenizer", test::data("tokenizer/chat/tokenizer.json"), "--chat-template",
                                          test::data("chat/templates/chatml.jinja")};
  const Outcome outcome = inspect(line, flags);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n⟦Noah.")) << outcome.out;
  const Outcome without = inspect(line, {flags[0], flags[1]});
  EXPECT_EQ(without.status, 4);
  EXPECT_THAT(without.err, HasSubstr("expected a chat template"));
}

TEST_F(InspectRows, SayWhatTextsBeginWithAndWhatIsNotRead) {
  const std::vector<std::string> flags = {"--tokenizer", test::data("tokenizer/xlmr-style/tokenizer.json")};
  const Json about = described("{\"text\": \"In the beginning\", \"id\": 1}\n{\"text\": \"<s>God</s>\", \"id\": 2, \"meta\": {}}\n", flags);
  EXPECT_EQ(about["texts_begin_with"], Json::parse(R"(["<s>"])"));
  EXPECT_EQ(about["texts_end_with"], Json::parse(R"(["</s>"])"));
  EXPECT_EQ(about["unread_keys"], Json::parse(R"({"id": 2, "meta": 1})"));
  std::string shown;
  for (const Json& document : about["first_rows"][0]["documents"]) {
    for (const Json& piece : document) shown += piece["text"].get<std::string>();
  }
  EXPECT_THAT(shown, HasSubstr("<s> In the beginning</s><s> God</s>"));
  EXPECT_THAT(shown, Not(HasSubstr("<s><s>")));
  EXPECT_EQ(described(kTwo)["texts_begin_with"], Json::array());
  // A row that already packs two sequences is shown as two documents, including one whose labels are all -100 (no targets).
  const Json packed = described(R"({"input_ids": [97, 98, 99, 100], "seq_lengths": [2, 2], "labels": [-100, -100, -100, 100]})"
                                "\n",
                                {"--sequence-length", "6", "--packing", "off"});
  EXPECT_EQ(packed["documents"], 2);
  EXPECT_EQ(packed["first_rows"][0]["documents"].size(), 2u);
  EXPECT_EQ(packed["first_rows"][0]["padding"], 2);
}

TEST_F(InspectRows, LetNothingButTextToTheTerminal) {
  const Outcome outcome = inspect("{\"text\": \"a\\u001b[31mred\\u009b0m \\u00e9\\tb\"}\n");
  EXPECT_THAT(outcome.out, HasSubstr("a⟦\\x1b[31mred\\u009b0m é\tb⟧"));
  const Outcome much = inspect("{\"text\": \"" + std::string(100'000, 'y') + "\"}\n", {"--sequence-length", "100000"});
  EXPECT_THAT(much.out, HasSubstr("yyy⟧ …"));
  EXPECT_LT(much.out.size(), 4000u);
}

TEST_F(InspectRows, RefuseWhatTrainRefuses) {
  const Outcome bad = inspect("{\"text\": \"fine\"}\n{\"text\": 7}\n");
  EXPECT_EQ(bad.status, 4);
  EXPECT_THAT(bad.err, HasSubstr("a.jsonl, line 2"));
  EXPECT_EQ(described("{\"text\": \"fine\"}\n{\"text\": 7}\n", {"--skip-bad-lines"})["bad_lines"], 1);
  EXPECT_EQ(inspect(kTwo, {"--model", "gpt2-tiny", "--sequence-length", "100000"}).status, 2);
  EXPECT_EQ(inspect(kTwo, {"--model", "cifar-net"}).status, 2);
  EXPECT_EQ(inspect(kTwo, {"--tokenizer", "not-there"}).status, 2);
  EXPECT_EQ(run_app({"inspect", folder.path() / "none.jsonl", "--data-cache", folder.path() / "cache"}).status, 4);
}

}  // namespace
}  // namespace spillway::app::inspect_rows_test
